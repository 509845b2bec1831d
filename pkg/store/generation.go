package store

import (
	"context"
	"time"
)

// Generation is the number of the table's history. A restore from a backup raises it. Each
// minted token contains it, so the table refuses the tokens that were issued after the backup.
type Generation struct {
	Number   int64     `json:"number"`   // milliseconds since 1970 at the restore; 0: never restored
	Restored time.Time `json:"restored"` // time of the restore; zero: never
	// Table is the name of the table in its engine, so that a copy under another name is
	// recognised; "": the engine has no names.
	Table string `json:"table,omitempty"`
	// TrustsMoved is set when service accounts have replaced the rules for OIDC tokens of all runners.
	TrustsMoved bool `json:"trusts_moved,omitempty"`
}

// Generation returns the generation of the table: number 0 if it was never restored.
func (s *Store) Generation(ctx context.Context) (Stored[Generation], error) {
	return getOr(ctx, s, generationKey(), Generation{})
}

// PutGeneration writes the generation of the table.
func (t *Tx) PutGeneration(r Stored[Generation]) { put(t, generationKey(), r) }

package kernel

import (
	"encoding/json"
	"fmt"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/store"
)

// Once makes a request that creates something idempotent. With an empty Key, each
// request creates a new record.
type Once struct {
	Org   fairlead.OrgID
	Route string
	Key   string // the caller's, at most MaxIdempotencyKey bytes
	Body  any    // the request; only its hash is stored
}

// MaxIdempotencyKey is the longest Idempotency-Key, in bytes.
const MaxIdempotencyKey = 255

// Seen returns the subject that an earlier request with the same key created. If no
// such request exists, Seen returns "" and adds a record of this request and its
// subject to the commit.
func (tx *Tx) Seen(o Once, subject string) (string, error) {
	if o.Key == "" {
		return "", nil
	}
	if len(o.Key) > MaxIdempotencyKey {
		return "", fairlead.Invalid(fairlead.CodeIdempotencyKeyTooLong, "the Idempotency-Key is longer than %d bytes", MaxIdempotencyKey)
	}
	body, err := json.Marshal(o.Body)
	if err != nil {
		return "", fmt.Errorf("hash request: %w", err)
	}
	request := tx.Minter.Digest(o.Route + "\n" + string(body))
	hash := identity.Hash(string(o.Org) + "\n" + o.Key)
	r, err := tx.Store.Idempotency(tx.Ctx, hash)
	switch {
	case fairlead.KindOf(err) == fairlead.KindNotFound:
		tx.PutIdempotency(hash, store.Idempotency{Request: request, Subject: subject}, tx.Now)
		return "", nil
	case err != nil:
		return "", err
	case r.V.Request != request:
		return "", &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeIdempotencyKeyReused,
			Message: "the Idempotency-Key was used for another request",
			Hint:    "Use a new key for each request, and the same key only to repeat it."}
	}
	return r.V.Subject, nil
}

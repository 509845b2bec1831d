package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/runner/ledger"
)

// headKeys begins the keys of heads: the chain, the number and the begin of the hash follow.
const headKeys = "audit/"

// Head is the newest entry of an install's audit as a signed job spec stated it. The customer compares it with an export
// of the vendor's audit.
type Head struct {
	Chain string    `json:"chain"`
	N     int64     `json:"n"`
	Hash  string    `json:"hash"` // sha256:…
	At    time.Time `json:"at"`   // when a step first kept it
	Job   string    `json:"job"`
}

// KeepHead stores a head, unless the ledger has it. Another hash of the same entry is another head: both stay.
func KeepHead(ctx context.Context, l ledger.Ledger, h Head) error {
	value, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("encode a head of the audit: %w", err)
	}
	digest := strings.TrimPrefix(h.Hash, "sha256:")
	err = l.Create(ctx, fmt.Sprintf("%s%s/%012d-%.16s", headKeys, h.Chain, h.N, digest), value)
	if errors.Is(err, ledger.ErrExists) {
		return nil
	}
	return err
}

// Heads returns all heads, by chain and number.
func Heads(ctx context.Context, l ledger.Ledger) ([]Head, error) {
	entries, err := l.List(ctx, headKeys)
	if err != nil {
		return nil, err
	}
	all := make([]Head, len(entries))
	for i, e := range entries {
		if err := json.Unmarshal(e.Value, &all[i]); err != nil {
			return nil, fmt.Errorf("read %s of the ledger: %w", e.Key, err)
		}
	}
	return all, nil
}

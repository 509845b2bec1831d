package audit

import (
	"cmp"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
)

// The kinds of findings.
const (
	Changed   = "changed"   // an entry or checkpoint is not the one that was chained or signed
	Dropped   = "dropped"   // entries or checkpoints are missing
	Reordered = "reordered" // an entry is not in its place
	Repeated  = "repeated"  // two lines have the same number
	Unsigned  = "unsigned"  // no trusted key signed a checkpoint
)

// Finding is a difference between an export and the history that was chained and signed.
type Finding struct {
	Kind       string `json:"kind"`
	Chain      string `json:"chain,omitempty"`      // "": the finding is about checkpoints
	N          int64  `json:"n"`                    // the first entry or checkpoint
	To         int64  `json:"to,omitempty"`         // the last one, if there are several
	Checkpoint int64  `json:"checkpoint,omitempty"` // the checkpoint that shows it
	Message    string `json:"message"`
}

// Report is the result of a verification.
type Report struct {
	Header      Header    `json:"export"`
	Entries     int       `json:"entries"`
	Chains      int       `json:"chains"`
	Checkpoints int       `json:"checkpoints"`
	First       int64     `json:"first_checkpoint,omitempty"` // number of the first checkpoint
	Last        time.Time `json:"last,omitzero"`              // time of the last checkpoint that verifies; zero: none
	SignedBy    []string  `json:"signed_by"`                  // IDs of the keys that signed the checkpoints
	Findings    []Finding `json:"findings"`
	// Newer are the entries after the last checkpoint of their chain. Their links were verified, but who can write to the
	// table could have made others in their place.
	Newer []Entry `json:"newer"`
	// Starts are the first entries of chains whose earlier entries are not in the export.
	Starts []Entry `json:"starts"`
}

// Options of Verify.
type Options struct {
	Keys  []ed25519.PublicKey // trusted keys; nil: those of the export
	Heads []KnownHead         // heads that were kept elsewhere
}

// KnownHead is a head of a chain that was kept outside of the control plane, and when.
type KnownHead struct {
	Head
	At time.Time `json:"at"`
}

// late is how much older an entry without a checkpoint can be than the last checkpoint. A control plane signs one after a minute,
// and after a failure it tries again.
const late = 15 * time.Minute

type verified struct {
	Entry
	hash string
}

type verifier struct {
	Report
	keys     map[string]ed25519.PublicKey
	chains   map[string]map[int64]verified
	last     map[string]int64            // by chain: number in the line before
	anchors  map[string]map[int64]string // hashes of heads in checkpoints that verify
	signed   []Signed
	messages [][]byte
}

// Verify reads an export and compares each entry with the chains and the checkpoints. An error means that r is no export; what
// was altered is in the findings.
func Verify(r io.Reader, o Options) (Report, error) {
	v := &verifier{keys: map[string]ed25519.PublicKey{}, chains: map[string]map[int64]verified{}, last: map[string]int64{}, anchors: map[string]map[int64]string{}}
	v.Findings, v.Newer, v.Starts, v.SignedBy = []Finding{}, []Entry{}, []Entry{}, []string{}
	if err := read(r, v.take); err != nil {
		return Report{}, err
	}
	if v.Header.V != 1 {
		return Report{}, errors.New("the file does not begin with the header of an export of version 1")
	}
	if o.Keys != nil {
		v.keys = map[string]ed25519.PublicKey{}
		for _, k := range o.Keys {
			v.keys[string(k)] = k
		}
	}
	v.checkpoints()
	for _, chain := range slices.Sorted(maps.Keys(v.chains)) {
		v.chain(chain)
	}
	for _, h := range o.Heads {
		v.known(h)
	}
	slices.SortStableFunc(v.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Chain, b.Chain), cmp.Compare(a.N, b.N))
	})
	return v.Report, nil
}

func (v *verifier) take(l line) error {
	switch {
	case l.Export != nil:
		v.Header = *l.Export
	case l.Key != nil:
		v.keys[l.Key.ID] = l.Key.PublicKey
	case l.Entry != nil:
		return v.entry(l.Entry)
	case l.Checkpoint != nil:
		return v.checkpoint(l.Checkpoint)
	}
	return nil
}

func (v *verifier) entry(raw json.RawMessage) error {
	canonical := jsontext.Value(raw).Clone()
	if err := canonical.Canonicalize(); err != nil {
		return fmt.Errorf("an entry is no JSON: %w", err)
	}
	e := verified{hash: Digest(canonical)}
	if err := json.Unmarshal(raw, &e.Entry); err != nil {
		return fmt.Errorf("an entry has another form: %w", err)
	}
	v.Entries++
	of := v.chains[e.Chain]
	if of == nil {
		of = map[int64]verified{}
		v.chains[e.Chain] = of
	}
	if _, twice := of[e.N]; twice {
		v.find(Finding{Kind: Repeated, Chain: e.Chain, N: e.N, Message: fmt.Sprintf("two lines are entry %d of chain %s", e.N, e.Chain)})
		return nil
	}
	if before := v.last[e.Chain]; e.N < before {
		v.find(Finding{Kind: Reordered, Chain: e.Chain, N: e.N, Message: fmt.Sprintf("entry %d of chain %s stands after entry %d", e.N, e.Chain, before)})
	}
	v.last[e.Chain] = e.N
	of[e.N] = e
	return nil
}

func (v *verifier) checkpoint(raw json.RawMessage) error {
	var s Signed
	if err := json.Unmarshal(raw, &s); err != nil {
		return fmt.Errorf("a checkpoint has another form: %w", err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return err
	}
	// What was signed is all but these two, also fields that this version does not know.
	delete(all, "key")
	delete(all, "signature")
	payload, err := Canonical(all)
	if err != nil {
		return fmt.Errorf("a checkpoint is no JSON: %w", err)
	}
	v.signed, v.messages = append(v.signed, s), append(v.messages, payload)
	v.Checkpoints++
	return nil
}

func (v *verifier) find(f Finding) { v.Findings = append(v.Findings, f) }

// checkpoints verifies the signatures and the order of all checkpoints, and collects the heads in those that verify.
func (v *verifier) checkpoints() {
	if len(v.signed) > 0 {
		v.First = v.signed[0].N
	}
	for i, s := range v.signed {
		if i > 0 {
			before := v.signed[i-1]
			switch {
			case s.N <= before.N:
				v.find(Finding{Kind: Reordered, N: s.N, Message: fmt.Sprintf("checkpoint %d stands after checkpoint %d", s.N, before.N)})
			case s.N > before.N+1:
				v.find(Finding{Kind: Dropped, N: before.N + 1, To: s.N - 1, Message: fmt.Sprintf("the checkpoints from %d to %d are missing", before.N+1, s.N-1)})
			case s.Prev != Digest(v.messages[i-1]):
				v.find(Finding{Kind: Changed, N: before.N, Message: fmt.Sprintf("checkpoint %d is not the one before checkpoint %d", before.N, s.N)})
			}
		}
		id, ok := v.signer(s, v.messages[i])
		if !ok {
			v.find(Finding{Kind: Unsigned, N: s.N, Message: fmt.Sprintf("no trusted key signed checkpoint %d", s.N)})
			continue
		}
		if !slices.Contains(v.SignedBy, id) {
			v.SignedBy = append(v.SignedBy, id)
		}
		v.Last = s.At
		for _, h := range s.Heads {
			if v.Header.Chain != "" && h.Chain != v.Header.Chain {
				continue
			}
			if v.anchors[h.Chain] == nil {
				v.anchors[h.Chain] = map[int64]string{}
			}
			v.anchors[h.Chain][h.N] = h.Hash
			v.expected(h, s.At, s.N)
		}
	}
}

func (v *verifier) signer(s Signed, payload []byte) (id string, ok bool) {
	m := dsse.PAE(PayloadType, payload)
	for _, k := range v.keys {
		if verify(k, m, s.Signature) == nil {
			return s.Key, true
		}
	}
	return "", false
}

// expired reports whether entries of this time may be missing, because the control plane kept them long enough.
func (v *verifier) expired(at time.Time) bool {
	return v.Header.KeptDays > 0 && at.Before(v.Header.At.AddDate(0, 0, -v.Header.KeptDays))
}

// expected compares a head that was signed with the entry of the export.
func (v *verifier) expected(h Head, at time.Time, checkpoint int64) {
	e, ok := v.chains[h.Chain][h.N]
	switch {
	case !ok && !v.expired(at):
		v.find(Finding{Kind: Dropped, Chain: h.Chain, N: h.N, Checkpoint: checkpoint,
			Message: fmt.Sprintf("entry %d of chain %s is missing; checkpoint %d of %s names it", h.N, h.Chain, checkpoint, at.UTC().Format(time.RFC3339))})
	case ok && e.hash != h.Hash:
		v.find(Finding{Kind: Changed, Chain: h.Chain, N: h.N, Checkpoint: checkpoint,
			Message: fmt.Sprintf("entry %d of chain %s, or one before it, is not the one that was signed in checkpoint %d of %s", h.N, h.Chain, checkpoint, at.UTC().Format(time.RFC3339))})
	}
}

// known compares a head that was kept elsewhere with the entry of the export.
func (v *verifier) known(h KnownHead) {
	e, ok := v.chains[h.Chain][h.N]
	switch {
	case v.Header.Chain != "" && h.Chain != v.Header.Chain:
	case !ok && !v.expired(h.At):
		v.find(Finding{Kind: Dropped, Chain: h.Chain, N: h.N, Message: fmt.Sprintf("entry %d of chain %s is missing; the kept heads have it since %s", h.N, h.Chain, h.At.UTC().Format(time.RFC3339))})
	case ok && e.hash != h.Hash:
		v.find(Finding{Kind: Changed, Chain: h.Chain, N: h.N, Message: fmt.Sprintf("entry %d of chain %s, or one before it, is not the one of the kept heads of %s: the history was rewritten", h.N, h.Chain, h.At.UTC().Format(time.RFC3339))})
	}
}

// chain verifies the links of a chain.
func (v *verifier) chain(chain string) {
	entries, anchors := v.chains[chain], v.anchors[chain]
	numbers := slices.Sorted(maps.Keys(entries))
	v.Chains++
	if first := entries[numbers[0]]; first.N > 1 || first.Prev != "" {
		v.Starts = append(v.Starts, first.Entry)
	}
	// intact reports whether something else confirms the content of an entry.
	intact := func(n int64) bool {
		if hash, ok := anchors[n]; ok {
			return hash == entries[n].hash
		}
		next, ok := entries[n+1]
		return ok && next.Prev == entries[n].hash
	}
	anchored := int64(0)
	for n := range anchors {
		anchored = max(anchored, n)
	}
	for i, n := range numbers {
		e := entries[n]
		if n > anchored {
			v.Newer = append(v.Newer, e.Entry)
			if e.Recorded.Before(v.Last.Add(-late)) {
				v.find(Finding{Kind: Dropped, Chain: chain, N: n, Message: fmt.Sprintf("no checkpoint has entry %d of chain %s, and later ones exist: a checkpoint is missing", n, chain)})
			}
		}
		if e.Org != v.Header.Org {
			v.find(Finding{Kind: Changed, Chain: chain, N: n, Message: fmt.Sprintf("entry %d of chain %s is of org %q", n, chain, e.Org)})
		}
		if i == 0 {
			continue
		}
		before := entries[numbers[i-1]]
		switch {
		case n > before.N+1:
			v.find(Finding{Kind: Dropped, Chain: chain, N: before.N + 1, To: n - 1, Message: missing(chain, before.N+1, n-1)})
		case e.Prev == before.hash:
		case intact(n) || !intact(before.N):
			v.find(Finding{Kind: Changed, Chain: chain, N: before.N, Message: fmt.Sprintf("entry %d of chain %s was changed: entry %d has another hash for it", before.N, chain, n)})
		default:
			v.find(Finding{Kind: Changed, Chain: chain, N: n, Message: fmt.Sprintf("entry %d of chain %s was changed: it does not follow entry %d", n, chain, before.N)})
		}
	}
}

func missing(chain string, from, to int64) string {
	if from == to {
		return fmt.Sprintf("entry %d of chain %s is missing", from, chain)
	}
	return fmt.Sprintf("the entries from %d to %d of chain %s are missing", from, to, chain)
}

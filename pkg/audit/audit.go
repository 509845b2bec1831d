// Package audit defines the entries of the audit, the chains that they form, and the signed checkpoints of an org's chains. It
// also verifies an export, without a control plane.
//
// An entry has the hash of the entry before it in its chain, so a change of an entry breaks the link to the next one. A
// checkpoint has the hashes of the newest entries of chains, and the control plane signs it. So a person who can write to
// the table but cannot sign cannot make a new history that verifies up to the last checkpoint.
//
// All hashes are SHA-256 over the canonical JSON of RFC 8785, in the form "sha256:" and hexadecimal digits.
package audit

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
)

// OrgChain is the name of the chain of what belongs to an org and to no install. The chain of an install has the install's
// identifier.
const OrgChain = "org"

// Allowed is the decision of an entry. A denied request changes nothing, so it has no commit and no entry; the log has it.
const Allowed = "allowed"

// MaxEntry is the size of an entry's canonical JSON, in bytes. With its keys such an entry is an item of at most 1 KB, which
// costs one write unit.
const MaxEntry = 840

// MaxHeads is the largest number of heads in one checkpoint, so that its item has at most 2 KB.
const MaxHeads = 12

// Entry records one commit that a person or a program of the vendor asked for.
type Entry struct {
	V        int       `json:"v"` // 1
	Org      string    `json:"org"`
	Chain    string    `json:"chain"`          // an install's identifier, or OrgChain
	N        int64     `json:"n"`              // 1 for the first entry of the chain, and one more for each further one
	Prev     string    `json:"prev,omitempty"` // hash of the entry before; "": this is the first one
	ID       string    `json:"id"`             // identifies the commit
	At       time.Time `json:"at"`             // when the commit was made, by the control plane's clock
	Recorded time.Time `json:"recorded"`       // when the entry joined its chain
	Actor    Actor     `json:"actor"`
	Action   string    `json:"action"` // the API's operation, such as update-install
	Object   Object    `json:"object"`
	Also     []string  `json:"also,omitempty"` // further objects of the commit, as "kind name"
	Request  string    `json:"request,omitempty"`
	Decision string    `json:"decision"`
	Rights   []string  `json:"rights,omitempty"` // for which the rule of the route can ask
	Changes  []Change  `json:"changes,omitempty"`
	Omitted  *Omitted  `json:"omitted,omitempty"` // changes that do not fit; nil: none
}

// Actor is who asked for the commit.
type Actor struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	Kind string `json:"kind,omitempty"` // "": an API token
}

// Object is what a commit changed.
type Object struct {
	Kind string `json:"kind"`
	Name string `json:"name,omitempty"`
	ID   string `json:"id,omitempty"`
}

// Change is a field of the object before and after the commit. A secret, and a value that is too long, has its digest in place of the value.
type Change struct {
	Field  string          `json:"field"`
	Before json.RawMessage `json:"before,omitempty"` // absent: the field was not set
	After  json.RawMessage `json:"after,omitempty"`  // absent: the field is not set
}

// Omitted are the changes that an entry does not list.
type Omitted struct {
	Count  int    `json:"count"`
	Digest string `json:"digest"` // of the list of all changes
}

// Head is the newest entry of a chain.
type Head struct {
	Chain string `json:"chain"`
	N     int64  `json:"n"`
	Hash  string `json:"hash"`
}

// Checkpoint has the heads of the chains of an org that moved since the last checkpoint.
type Checkpoint struct {
	V     int       `json:"v"` // 1
	Org   string    `json:"org"`
	N     int64     `json:"n"`              // one more than that of the checkpoint before
	Prev  string    `json:"prev,omitempty"` // hash of the checkpoint before; "": this is the first one
	At    time.Time `json:"at"`
	Heads []Head    `json:"heads"`
}

// Signed is a checkpoint with its signature.
type Signed struct {
	Checkpoint
	Key       string `json:"key"`       // ID of the key that signed
	Signature []byte `json:"signature"` // Ed25519 over Message
}

// PayloadType is the payload type of the signature of a checkpoint. The signature covers it, as DSSE requires, so no other
// document of the control plane is accepted as a checkpoint.
const PayloadType = "application/vnd.fairlead.audit-checkpoint+json"

// Canonical returns the JSON of v in the form of RFC 8785.
func Canonical(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	canonical := jsontext.Value(b)
	err = canonical.Canonicalize()
	return canonical, err
}

// Hash returns the hash of the canonical JSON of an entry or a checkpoint.
func Hash(v any) (string, error) {
	b, err := Canonical(v)
	if err != nil {
		return "", fmt.Errorf("hash a record of the audit: %w", err)
	}
	return Digest(b), nil
}

// Digest returns the SHA-256 of b as "sha256:" and hexadecimal digits.
func Digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Message returns what a key signs for a checkpoint.
func (c Checkpoint) Message() ([]byte, error) {
	b, err := Canonical(c)
	if err != nil {
		return nil, fmt.Errorf("encode checkpoint %d: %w", c.N, err)
	}
	return dsse.PAE(PayloadType, b), nil
}

// After returns the entry as the next one after the head of its chain, and the new head. If before is nil, the entry is the first one,
// and keeps its number.
func (e Entry) After(before *Head) (Entry, Head, error) {
	e.V = 1
	if before != nil {
		e.N, e.Prev = before.N+1, before.Hash
	}
	e, canonical, err := e.fit()
	return e, Head{e.Chain, e.N, Digest(canonical)}, err
}

// Head returns the head of a chain whose newest entry is e.
func (e Entry) Head() (Head, error) {
	hash, err := Hash(e)
	return Head{e.Chain, e.N, hash}, err
}

// maxValue is the largest JSON of a value in an entry, in bytes.
const maxValue = 64

// fit returns the entry without the changes for which it has no space, and its canonical JSON.
func (e Entry) fit() (Entry, []byte, error) {
	given := e.Changes
	e.Changes = nil
	for _, c := range given {
		e.Changes = append(e.Changes, Change{Field: c.Field, Before: short(c.Before), After: short(c.After)})
	}
	for {
		b, err := Canonical(e)
		if err != nil {
			return e, nil, fmt.Errorf("encode an entry of the audit about %s: %w", e.Object.Kind, err)
		}
		if len(b) <= MaxEntry || len(e.Changes) == 0 {
			return e, b, nil
		}
		if e.Omitted == nil {
			all, err := Canonical(given)
			if err != nil {
				return e, nil, fmt.Errorf("encode the changes of %s: %w", e.Object.Kind, err)
			}
			e.Omitted = &Omitted{Digest: Digest(all)}
		}
		e.Changes = e.Changes[:len(e.Changes)-1]
		e.Omitted.Count++
	}
}

// short returns the value, or its digest if it is too long.
func short(v json.RawMessage) json.RawMessage {
	if len(v) <= maxValue {
		return v
	}
	return Masked(v)
}

// Masked returns the JSON string of a value's digest.
func Masked(v []byte) json.RawMessage {
	sum := sha256.Sum256(v)
	return json.RawMessage(`"sha256:` + base64.RawURLEncoding.EncodeToString(sum[:]) + `"`)
}

// Verify returns an error unless key signed the checkpoint.
func (s Signed) Verify(key ed25519.PublicKey) error {
	m, err := s.Message()
	if err != nil {
		return err
	}
	return verify(key, m, s.Signature)
}

func verify(key ed25519.PublicKey, message, signature []byte) error {
	if len(key) != ed25519.PublicKeySize || !ed25519.Verify(key, message, signature) {
		return fmt.Errorf("the signature does not verify")
	}
	return nil
}

// equalJSON reports whether two values are equal as JSON texts.
func equalJSON(a, b json.RawMessage) bool { return bytes.Equal(a, b) }

// Differences returns the fields that differ between two flat records, in the order of their names.
func Differences(before, after map[string]json.RawMessage) []Change {
	var out []Change
	for _, field := range sortedFields(before, after) {
		if b, a := before[field], after[field]; !equalJSON(b, a) {
			out = append(out, Change{Field: field, Before: b, After: a})
		}
	}
	return out
}

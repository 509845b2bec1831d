// Package approval is the customer's signature for applies: documents that a person of the customer signs with a key of
// theirs, and their verification in the step. The control plane only carries the signed envelopes. It has no key that signs
// one. The package is pure.
//
// A Plan approves one saved plan of one component, once. A Standing approval permits a limited number of later
// applies in a window, if their changes are in its scope.
//
// The envelope is DSSE. Its payload is the document in the canonical form of RFC 8785 (JCS): equal documents have equal
// bytes, and a payload in another form is refused, so a document has one reading only. All values are texts, lists of texts
// and integers below 2^53, because JCS cannot tell larger numbers apart.
package approval

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/fingerprint"
)

// The payload types. The signature covers them, so no other signed document is accepted as an approval.
const (
	PlanPayloadType     = "application/vnd.fairlead.approval.v1+json"
	StandingPayloadType = "application/vnd.fairlead.standing-approval.v1+json"
)

const (
	// MaxEnvelope is the largest envelope that Verify reads, in bytes.
	MaxEnvelope = 64 << 10
	// MaxValidity is the longest time between the issue of an approval of a plan and its end. A control plane could
	// keep an approval back and use it later, as long as the base has not moved.
	MaxValidity = 7 * 24 * time.Hour
	// MaxUses is the largest number of applies that a standing approval permits.
	MaxUses = 1000

	version   = 1
	clockSkew = 2 * time.Minute // largest accepted difference of two clocks
	minID     = 16              // characters of an ID
	maxID     = 64
	maxText   = 1 << 10
	maxNames  = 100
)

// Subject is what an apply is about to do. The step computes it: all digests from bytes that it has.
type Subject struct {
	Install   fairlead.InstallID `json:"install"`
	Component string             `json:"component"`
	Operation string             `json:"operation"` // apply, destroy, or the name of another operation that changes
	Artifact  string             `json:"artifact"`  // sha256:… of the component's source; "": it has none
	ChangeSet string             `json:"change_set"`
	Plan      string             `json:"plan"`     // sha256:… of the saved plan
	Lineage   string             `json:"lineage"`  // of the base: a state's lineage, a release's or an inventory's UID; "": nothing existed
	Revision  string             `json:"revision"` // of the base, a decimal number; "": nothing existed
}

// SetBase sets Lineage and Revision.
func (s *Subject) SetBase(b *changeset.Base) {
	s.Lineage, s.Revision = "", ""
	if b != nil {
		s.Lineage, s.Revision = b.Lineage, strconv.FormatInt(b.Revision, 10)
	}
}

// Plan approves one apply of one saved plan.
type Plan struct {
	V  int    `json:"v"`  // 1
	ID string `json:"id"` // random; an apply consumes it
	Subject
	IssuedAt  Moment `json:"issued_at"`
	ExpiresAt Moment `json:"expires_at"`
}

// Standing approves applies that are not known yet.
type Standing struct {
	V          int                `json:"v"` // 1
	ID         string             `json:"id"`
	Install    fairlead.InstallID `json:"install"`
	Components []string           `json:"components"` // sorted; empty: each
	Operations []string           `json:"operations"` // sorted; at least one
	Actions    []string           `json:"actions"`    // actions of changes that are permitted, sorted; at least one
	Destroys   int                `json:"destroys"`   // largest number of objects that one apply deletes or replaces
	Uses       int                `json:"uses"`       // at least 1
	IssuedAt   Moment             `json:"issued_at"`
	From       Moment             `json:"from"`
	Until      Moment             `json:"until"`
}

// Moment is a time with a precision of a second, in UTC. Its text has one form only.
type Moment struct{ time.Time }

// At returns the moment of a time.
func At(t time.Time) Moment { return Moment{t.UTC().Truncate(time.Second)} }

// MarshalText implements encoding.TextMarshaler.
func (m Moment) MarshalText() ([]byte, error) { return []byte(m.UTC().Format(time.RFC3339)), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *Moment) UnmarshalText(text []byte) error {
	t, err := time.Parse(time.RFC3339, string(text))
	if err != nil {
		return fmt.Errorf("%.40q is not a time", text)
	}
	*m = At(t)
	if again, _ := m.MarshalText(); string(again) != string(text) {
		return fmt.Errorf("the time %q is not in UTC with full seconds", text)
	}
	return nil
}

// MarshalJSON hides the method of time.Time.
func (m Moment) MarshalJSON() ([]byte, error) {
	text, _ := m.MarshalText()
	return json.Marshal(string(text))
}

// UnmarshalJSON hides the method of time.Time.
func (m *Moment) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return err
	}
	return m.UnmarshalText([]byte(text))
}

// ChangeSetDigest returns "sha256:…" of the canonical JSON of a change set. Numbers are compared exactly, also those above
// 2^53, so a digest stands for one change set only.
func ChangeSetDigest(set json.RawMessage) (string, error) {
	dec := json.NewDecoder(bytes.NewReader(set))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return "", fmt.Errorf("read the change set: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return "", errors.New("read the change set: there is more after it")
	}
	canonical, err := fingerprint.Canonical(v)
	if err != nil {
		return "", fmt.Errorf("read the change set: %w", err)
	}
	sum := sha256.Sum256(canonical)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// SetDigest returns the digest of what a plan changes: the change set without its base, which a Subject names itself, and
// without the modules that the plan fetched, which only the saved plan's digest covers.
func SetDigest(set *changeset.Set) (string, error) {
	only := *set
	only.Base, only.Fetched = nil, nil
	text, err := json.Marshal(only)
	if err != nil {
		return "", fmt.Errorf("encode the change set: %w", err)
	}
	return ChangeSetDigest(text)
}

// check returns what is wrong with a document, or "".
func (p Plan) check() string {
	for _, digest := range []string{p.ChangeSet, p.Plan} {
		if !isDigest(digest) {
			return "a digest of the plan is missing"
		}
	}
	switch {
	case p.V != version:
		return fmt.Sprintf("it has version %d, and this program reads version %d", p.V, version)
	case !isID(p.ID):
		return "its id is not 16 to 64 letters and digits"
	case p.Install == "" || p.Component == "" || p.Operation == "":
		return "it names no install, component or operation"
	case !p.ExpiresAt.After(p.IssuedAt.Time) || p.ExpiresAt.Sub(p.IssuedAt.Time) > MaxValidity:
		return fmt.Sprintf("it is valid for no time, or for more than %s", MaxValidity)
	}
	return ""
}

func (s Standing) check() string {
	switch {
	case s.V != version:
		return fmt.Sprintf("it has version %d, and this program reads version %d", s.V, version)
	case !isID(s.ID):
		return "its id is not 16 to 64 letters and digits"
	case s.Install == "":
		return "it names no install"
	case len(s.Operations) == 0 || len(s.Actions) == 0:
		return "it permits no operation or no action"
	case !isSet(s.Components) || !isSet(s.Operations) || !isSet(s.Actions):
		return "a list is not sorted, has an element twice, or is too long"
	case s.Uses < 1 || s.Uses > MaxUses || s.Destroys < 0:
		return fmt.Sprintf("it permits fewer than 1 or more than %d applies, or a negative number of deletions", MaxUses)
	case !s.Until.After(s.From.Time):
		return "its window has no time"
	}
	return ""
}

func isID(id string) bool {
	for _, c := range id {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return len(id) >= minID && len(id) <= maxID
}

func isDigest(text string) bool {
	raw, err := hex.DecodeString(text[min(len(text), 7):])
	return err == nil && len(raw) == sha256.Size && text[:7] == "sha256:"
}

func isSet(names []string) bool {
	for i, name := range names {
		if name == "" || len(name) > maxText || i > 0 && names[i-1] >= name {
			return false
		}
	}
	return len(names) <= maxNames
}

// canonical returns the JSON of a document in the form of RFC 8785.
func canonical(document any) ([]byte, error) {
	b, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	v := jsontext.Value(b)
	err = v.Canonicalize()
	return v, err
}

// Sign returns the envelope of an approval of a plan, as JSON. key is a key of the customer.
func (p Plan) Sign(ctx context.Context, key Signer) ([]byte, error) {
	return sign(ctx, PlanPayloadType, p, p.check(), key)
}

// Sign returns the envelope of a standing approval, as JSON. key is a key of the customer. It sorts the lists.
func (s Standing) Sign(ctx context.Context, key Signer) ([]byte, error) {
	for _, list := range []*[]string{&s.Components, &s.Operations, &s.Actions} {
		*list = append([]string{}, *list...) // in JSON a list, also if it is empty
		slices.Sort(*list)
	}
	return sign(ctx, StandingPayloadType, s, s.check(), key)
}

func sign(ctx context.Context, payloadType string, document any, problem string, key Signer) ([]byte, error) {
	if problem != "" {
		return nil, fairlead.Invalid(fairlead.CodeInvalidApproval, "the approval is invalid: %s", problem)
	}
	payload, err := canonical(document)
	if err != nil {
		return nil, fmt.Errorf("encode the approval: %w", err)
	}
	es, err := dsse.NewEnvelopeSigner(dsseSigner{key})
	if err != nil {
		return nil, fmt.Errorf("sign the approval: %w", err)
	}
	env, err := es.SignPayload(ctx, payloadType, payload)
	if err != nil {
		return nil, fmt.Errorf("sign the approval: %w", err)
	}
	return json.Marshal(env)
}

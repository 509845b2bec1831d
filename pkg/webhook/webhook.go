// Package webhook defines the messages to a vendor's endpoint. A message is a domain event as a CloudEvent, signed
// according to the Standard Webhooks specification. So existing libraries for CloudEvents and for Standard Webhooks can
// read it. Package https sends the messages.
package webhook

import (
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/pattern"
)

// The headers of a message, from Standard Webhooks 1.0.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
)

// ContentType is the content type of a CloudEvent in JSON.
const ContentType = "application/cloudevents+json; charset=utf-8"

// Message is one message to an endpoint. Its ID is the same each time it is sent, so that the endpoint recognises a
// repeat.
type Message struct {
	ID   string
	Body []byte
}

// Sender sends messages to endpoints. Safe for concurrent use.
type Sender interface {
	// Send posts the message, signed with all keys, and returns the HTTP status of the response. It returns an error if
	// there was no response. A *fairlead.Error of KindInvalid means that repeating the request is useless.
	Send(ctx context.Context, endpoint string, keys []Keys, m Message) (status int, err error)
}

// ID returns the identifier of an event: "evt_" and a lower-case ULID of its time and of a digest of its type,
// subject and version. So identifiers sort by time, and a repeat has the same identifier.
func ID(e events.Domain) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%d", e.Type, e.Subject, e.Version))
	var id ulid.ULID
	_ = id.SetTime(ulid.Timestamp(e.Time)) // fails in the year 10889
	_ = id.SetEntropy(sum[:len(id)-6])     // fails for another length
	return "evt_" + strings.ToLower(id.String())
}

// Encode returns the message of an event: a CloudEvent 1.0 in structured JSON. Its data is the event's data and the
// version of the subject, which orders the events of one subject.
func Encode(e events.Domain) (Message, error) {
	data := map[string]any{}
	for k, v := range e.Data {
		data[k] = v
	}
	data["version"] = e.Version
	id := ID(e)
	body, err := json.Marshal(struct {
		SpecVersion string         `json:"specversion"`
		ID          string         `json:"id"`
		Source      string         `json:"source"`
		Type        string         `json:"type"`
		Subject     string         `json:"subject"`
		Time        time.Time      `json:"time"`
		ContentType string         `json:"datacontenttype"`
		Data        map[string]any `json:"data"`
	}{"1.0", id, "urn:fairlead:org:" + e.Org, e.Type, e.Subject, e.Time, "application/json", data})
	if err != nil {
		return Message{}, fmt.Errorf("encode event %s of %s: %w", e.Type, e.Subject, err)
	}
	return Message{ID: id, Body: body}, nil
}

// The prefixes of keys in the form for a person.
const (
	secretPrefix = "whsec_"
	publicPrefix = "whpk_"
)

const secretSize = 32 // bytes

// Keys sign the messages of a webhook in both forms of Standard Webhooks: with a secret that the endpoint has, too, and with a private
// key whose public half the endpoint has. Private is nil for a webhook that an earlier release created.
type Keys struct {
	Secret  []byte // for HMAC-SHA256, 32 bytes
	Private ed25519.PrivateKey
}

// NewKeys returns new random keys.
func NewKeys() Keys {
	b := make([]byte, secretSize+ed25519.SeedSize)
	_, _ = rand.Read(b) // never fails
	return Keys{Secret: b[:secretSize:secretSize], Private: ed25519.NewKeyFromSeed(b[secretSize:])}
}

// Encode returns the bytes that DecodeKeys reads.
func (k Keys) Encode() []byte {
	b := slices.Clone(k.Secret)
	if k.Private != nil {
		b = append(b, k.Private.Seed()...)
	}
	return b
}

// DecodeKeys reads the bytes of Encode, or a secret alone.
func DecodeKeys(b []byte) (Keys, error) {
	switch len(b) {
	case secretSize:
		return Keys{Secret: b}, nil
	case secretSize + ed25519.SeedSize:
		return Keys{Secret: b[:secretSize:secretSize], Private: ed25519.NewKeyFromSeed(b[secretSize:])}, nil
	}
	return Keys{}, fmt.Errorf("the keys of a webhook have %d bytes, want %d or %d", len(b), secretSize, secretSize+ed25519.SeedSize)
}

// FormatSecret returns the secret in the form that a person configures at the endpoint.
func (k Keys) FormatSecret() string {
	return secretPrefix + base64.StdEncoding.EncodeToString(k.Secret)
}

// FormatPublic returns the public key in the form that a person configures at the endpoint; "" if there is none.
func (k Keys) FormatPublic() string {
	if k.Private == nil {
		return ""
	}
	return publicPrefix + base64.StdEncoding.EncodeToString(k.Private.Public().(ed25519.PublicKey))
}

// Sign returns the value of HeaderSignature for a message that is sent at the given time: the signatures of all keys, in their order. An
// endpoint accepts the message if one of them is valid. The signatures cover the time, so an endpoint that checks the time can refuse a
// replayed old message.
func Sign(keys []Keys, m Message, at time.Time) string {
	content := append([]byte(m.ID+"."+Timestamp(at)+"."), m.Body...)
	var all []string
	for _, k := range keys {
		mac := hmac.New(sha256.New, k.Secret)
		mac.Write(content)
		all = append(all, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
		if k.Private != nil {
			all = append(all, "v1a,"+base64.StdEncoding.EncodeToString(ed25519.Sign(k.Private, content)))
		}
	}
	return strings.Join(all, " ")
}

// Timestamp returns the value of HeaderTimestamp.
func Timestamp(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }

// MaxURL is the longest URL of an endpoint, in bytes.
const MaxURL = 2000

// URLPattern is a regular expression for the start of an endpoint's URL.
const URLPattern = `^https://`

// CheckURL returns an error of KindInvalid if events cannot be sent to the URL. The URL must use https, name a host,
// and have neither a user nor a fragment.
func CheckURL(endpoint string) error {
	u, err := url.Parse(endpoint)
	if err == nil && len(endpoint) <= MaxURL && u.Scheme == "https" && u.Hostname() != "" && u.User == nil && u.Fragment == "" && u.Opaque == "" {
		return nil
	}
	return &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeInvalidWebhookURL,
		Message: fmt.Sprintf("%.200q is not a URL to which events can be sent", endpoint),
		Hint:    "Use https and a host on the internet, without a user and without a fragment."}
}

// MaxFilter is the longest pattern for event types, in bytes.
const MaxFilter = 100

// FilterPattern is the regular expression of the patterns that CheckFilter accepts.
const FilterPattern = `^(\*|fairlead\.\*|fairlead(\.[a-z-]+)+(\.\*)?)$`

var filterPattern = pattern.New(FilterPattern)

// CheckFilter returns an error of KindInvalid if the pattern does not have a valid form: a type such as
// fairlead.job.failed, all types below a name such as fairlead.job.*, or "*".
func CheckFilter(pattern string) error {
	if len(pattern) <= MaxFilter && filterPattern.MatchString(pattern) {
		return nil
	}
	return &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeInvalidWebhookEvent,
		Message: fmt.Sprintf("%.100q selects no events", pattern), Hint: `Use a type such as fairlead.job.failed, fairlead.job.* or "*".`}
}

// Selects reports whether at least one pattern selects the event type kind.
func Selects(patterns []string, kind string) bool {
	for _, p := range patterns {
		if below, ok := strings.CutSuffix(p, "*"); ok && strings.HasPrefix(kind, below) || p == kind {
			return true
		}
	}
	return false
}

// Package webhook is what a vendor's endpoint is sent: a domain event as a
// CloudEvent, signed as the Standard Webhooks specification says, so that the
// libraries of either read it. The endpoint is reached by package https.
package webhook

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// The headers of a message, by Standard Webhooks 1.0.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
)

// ContentType is that of a CloudEvent in JSON.
const ContentType = "application/cloudevents+json; charset=utf-8"

// Message is what is sent to an endpoint. ID is the same each time that it is
// sent: the endpoint knows a repeat by it.
type Message struct {
	ID   string
	Body []byte
}

// Sender sends messages to endpoints. Safe for concurrent use.
type Sender interface {
	// Send posts the message, signed with secret, and returns the status of the
	// answer. The error says why there was none; a *fairlead.Error of KindInvalid
	// says that there never will be.
	Send(ctx context.Context, endpoint string, secret []byte, m Message) (status int, err error)
}

// ID identifies an event: "evt_" and a ULID in lower case, made of its time and
// of what two of the same have in common. So identifiers are in the order of
// time, and a repeat has the same.
func ID(e events.Domain) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%d", e.Type, e.Subject, e.Version))
	var id ulid.ULID
	_ = id.SetTime(ulid.Timestamp(e.Time)) // fails in the year 10889
	_ = id.SetEntropy(sum[:len(id)-6])     // fails for another length
	return "evt_" + strings.ToLower(id.String())
}

// Encode returns the message of an event: a CloudEvent 1.0 in structured JSON.
// Its data is that of the event, with the version of its subject, by which the
// events of one subject are put in order.
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

// secretPrefix begins a secret as a person gets it.
const secretPrefix = "whsec_"

// NewSecret returns a new secret of 32 random bytes.
func NewSecret() []byte {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return b
}

// FormatSecret returns the secret as a person puts it into their endpoint.
func FormatSecret(secret []byte) string {
	return secretPrefix + base64.StdEncoding.EncodeToString(secret)
}

// Sign returns the value of HeaderSignature for a message that is sent at the
// given time, which the signature covers: an old message cannot be replayed to
// an endpoint that looks at it.
func Sign(secret []byte, m Message, at time.Time) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(m.ID + "." + Timestamp(at) + "."))
	mac.Write(m.Body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// Timestamp returns the value of HeaderTimestamp.
func Timestamp(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }

// MaxURL is the longest URL of an endpoint, in bytes.
const MaxURL = 2000

// URLPattern is the regular expression of how each URL of an endpoint begins.
const URLPattern = `^https://`

// CheckURL reports why nothing can be sent to the URL: it is https, names a
// host, and has neither a user nor a fragment. The error is of KindInvalid.
func CheckURL(endpoint string) error {
	u, err := url.Parse(endpoint)
	if err == nil && len(endpoint) <= MaxURL && u.Scheme == "https" && u.Hostname() != "" && u.User == nil && u.Fragment == "" && u.Opaque == "" {
		return nil
	}
	return &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeInvalidWebhookURL,
		Message: fmt.Sprintf("%.200q is no URL that events can be sent to", endpoint),
		Hint:    "Use https, a host that is reached from the internet, and neither a user nor a fragment."}
}

// MaxFilter is the longest pattern that selects types of events, in bytes.
const MaxFilter = 100

// FilterPattern is the regular expression of what CheckFilter takes.
const FilterPattern = `^(\*|fairlead\.\*|fairlead(\.[a-z-]+)+(\.\*)?)$`

var filterPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(FilterPattern) })

// CheckFilter reports why the pattern selects no types of events: it is a type
// such as fairlead.job.failed, all below one such as fairlead.job.*, or "*". The
// error is of KindInvalid.
func CheckFilter(pattern string) error {
	if len(pattern) <= MaxFilter && filterPattern().MatchString(pattern) {
		return nil
	}
	return &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeInvalidWebhookEvent,
		Message: fmt.Sprintf("%.100q selects no events", pattern), Hint: `Use a type such as fairlead.job.failed, fairlead.job.* or "*".`}
}

// Selects reports whether one of the patterns selects the type.
func Selects(patterns []string, kind string) bool {
	for _, p := range patterns {
		if below, ok := strings.CutSuffix(p, "*"); ok && strings.HasPrefix(kind, below) || p == kind {
			return true
		}
	}
	return false
}

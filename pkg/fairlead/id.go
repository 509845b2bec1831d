package fairlead

import (
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// The identifiers. Each is a short prefix naming the noun, "_", and a
// lower-case ULID, so identifiers made in a later millisecond sort later;
// those of one millisecond sort at random.
type (
	// OrgID names a tenant.
	OrgID string
	// AppID identifies an app across renames.
	AppID string
	// VersionID identifies an immutable app version: "ver_" and the first 26
	// hex digits of the SHA-256 of its canonical content.
	VersionID string
	// InstallID identifies one app in one customer's account. A recreated
	// install has a new one, so it never meets old state.
	InstallID string
	// RunnerID identifies a runner.
	RunnerID string
	// SessionID identifies one runner process' session.
	SessionID string
	// DeploymentID identifies a graph of jobs on one install.
	DeploymentID string
	// JobID identifies one job.
	JobID string
)

// DefaultOrg is the tenant of an embedded control plane.
const DefaultOrg OrgID = "default"

// The prefixes of identifiers, one for each noun.
const (
	PrefixApp        = "app"
	PrefixVersion    = "ver"
	PrefixInstall    = "ins"
	PrefixRunner     = "run"
	PrefixSession    = "ses"
	PrefixDeployment = "dep"
	PrefixJob        = "job"
	PrefixRequest    = "req"
	PrefixToken      = "tok"
	PrefixWebhook    = "whk"
)

// IDSource makes identifiers. It is passed to whatever needs new ones, so that
// a test or a simulation can replay them. Safe for concurrent use.
type IDSource func(prefix string) string

// RandomIDs returns an IDSource that takes its time from now and its entropy
// from the operating system.
func RandomIDs(now func() time.Time) IDSource {
	return func(prefix string) string {
		return prefix + "_" + strings.ToLower(ulid.MustNew(ulid.Timestamp(now()), rand.Reader).String())
	}
}

// TimeOf returns when an identifier was made, to the millisecond; false of what no
// RandomIDs has made.
func TimeOf(id string) (time.Time, bool) {
	_, u, ok := strings.Cut(id, "_")
	parsed, err := ulid.ParseStrict(strings.ToUpper(u))
	if !ok || err != nil {
		return time.Time{}, false
	}
	return ulid.Time(parsed.Time()), true
}

// MaxName is the longest name of an app, install, component, input or runner,
// in bytes: the limit of a DNS label, which names end up in.
const MaxName = 63

// CheckName reports why name cannot name a noun: names are DNS labels that
// begin with a letter. The error is of KindInvalid.
func CheckName(noun, name string) error {
	if isName(name) {
		return nil
	}
	return &Error{
		Kind: KindInvalid, Code: CodeInvalidName,
		Message: fmt.Sprintf("%q is not a valid %s name", name, noun),
		Hint:    "Use 1 to 63 lower-case letters, digits and hyphens; begin with a letter, end with a letter or digit.",
	}
}

// NamePattern is the regular expression of what CheckName takes.
const NamePattern = `^` + NameForm + `$`

// NameForm is NamePattern without its anchors, to be put together with others.
const NameForm = `[a-z]([a-z0-9-]{0,61}[a-z0-9])?`

// isName does not compile NamePattern: that costs as much as a tenth of a process
// that runs a job and ends. A test holds the two to each other.
func isName(s string) bool {
	if s == "" || len(s) > MaxName || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || i > 0 && ('0' <= c && c <= '9' || c == '-')) {
			return false
		}
	}
	return true
}

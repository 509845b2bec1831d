package fairlead

import (
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// The identifiers. Each is a prefix that names the noun, "_" and a lower-case ULID. An
// identifier that is created in a later millisecond sorts later. Identifiers of the same
// millisecond have a random order.
type (
	// OrgID names a tenant.
	OrgID string
	// AppID identifies an app across renames.
	AppID string
	// VersionID identifies an immutable app version: "ver_" and the first 26
	// hex digits of the SHA-256 of its canonical content.
	VersionID string
	// InstallID identifies one app in one customer's account. An install that is created again
	// gets a new ID, so it never uses the state of the old install.
	InstallID string
	// RunnerID identifies a runner.
	RunnerID string
	// SessionID identifies one session of an agent.
	SessionID string
	// DeploymentID identifies a graph of jobs on one install.
	DeploymentID string
	// JobID identifies one job.
	JobID string
	// WarmStepID identifies a step that was started before its job was known.
	WarmStepID string
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
	PrefixWarmStep   = "wrm"
	PrefixUser       = "usr"
	PrefixLogin      = "lgn"
	PrefixAccount    = "sac"
)

// IDSource creates identifiers. It is injected, so that tests and the simulator can replay
// identifiers. Safe for concurrent use.
type IDSource func(prefix string) string

// RandomIDs returns an IDSource that takes the time from now and the entropy from the operating
// system.
func RandomIDs(now func() time.Time) IDSource {
	return func(prefix string) string {
		return prefix + "_" + strings.ToLower(ulid.MustNew(ulid.Timestamp(now()), rand.Reader).String())
	}
}

// TimeOf returns the creation time of an identifier, to the millisecond. It returns false if id
// has no ULID of RandomIDs.
func TimeOf(id string) (time.Time, bool) {
	_, u, ok := strings.Cut(id, "_")
	parsed, err := ulid.ParseStrict(strings.ToUpper(u))
	if !ok || err != nil {
		return time.Time{}, false
	}
	return ulid.Time(parsed.Time()), true
}

// MaxName is the longest name of an app, install, component, input or runner, in bytes. Names
// become DNS labels, which have this limit.
const MaxName = 63

// CheckName returns an error of KindInvalid if name cannot name an object of the noun. Names
// are DNS labels that begin with a letter.
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

// ActionPrefix begins the name of an action among the parts of an app, such as actions.backup. No component has such a
// name, so that jobs, artifacts and nodes of deployments can name either.
const ActionPrefix = "actions."

// NamePattern is the regular expression of the names that CheckName accepts.
const NamePattern = `^` + NameForm + `$`

// NameForm is NamePattern without anchors, for use in larger expressions.
const NameForm = `[a-z]([a-z0-9-]{0,61}[a-z0-9])?`

// MaxVersionName is the longest name of an app's version, in bytes.
const MaxVersionName = 64

// VersionNamePattern is the regular expression of the texts that can name a version of an app. Of these,
// CheckVersionName also refuses texts that look like an identifier or a digest.
const VersionNamePattern = `^[0-9A-Za-z][0-9A-Za-z._+-]{0,63}$`

// CheckVersionName returns an error of KindInvalid if name cannot name a version of an app. A name never looks like the
// identifier of a version or like a digest, so that each text that selects a version has one meaning.
func CheckVersionName(name string) error {
	if isVersionName(name) && !LooksLikeVersionID(name) && !isDigest(name) {
		return nil
	}
	return &Error{
		Kind: KindInvalid, Code: CodeInvalidName,
		Message: fmt.Sprintf("%q is not a valid name of a version", name),
		Hint:    "Use 1 to 64 letters, digits and the characters . - _ +, such as v1.4.0; begin with a letter or digit. A name cannot begin with ver_, and cannot be a digest.",
	}
}

// LooksLikeVersionID reports whether text has the form of a version's identifier, or begins as one.
func LooksLikeVersionID(text string) bool { return strings.HasPrefix(text, PrefixVersion+"_") }

// isVersionName reports whether s matches VersionNamePattern.
func isVersionName(s string) bool {
	if s == "" || len(s) > MaxVersionName {
		return false
	}
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && (i == 0 || !strings.ContainsRune("._+-", rune(c))) {
			return false
		}
	}
	return true
}

// isDigest reports whether s is a SHA-256 in hexadecimal.
func isDigest(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdefABCDEF") == ""
}

// isName does not compile NamePattern, because that takes a tenth of the lifetime of a step
// with a short job. A test of package placement compares the two.
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

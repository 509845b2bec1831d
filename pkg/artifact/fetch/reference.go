package fetch

import (
	"net/url"
	"strings"

	"github.com/fairlead/fairlead/pkg/artifact/internal/tree"
)

// reference has the parts of "host[:port]/path@sha256:…".
type reference struct {
	host       string // with the port, if the reference has a port
	hostname   string
	repository string
	digest     string
}

// maxReference is the maximum length of a reference in bytes. Common registries limit a
// repository's name to 255, and URLs limit the rest.
const maxReference = 1 << 10

// parseReference splits a reference. It refuses a name without a host, because other tools read such a name as a name
// in a default registry.
func parseReference(s string) (reference, bool) {
	name, digest, ok := strings.Cut(s, "@")
	if !ok || len(s) > maxReference || !tree.IsDigest(digest) {
		return reference{}, false
	}
	host, repository, ok := strings.Cut(name, "/")
	if !ok || !strings.ContainsAny(host, ".:") && host != "localhost" {
		return reference{}, false
	}
	u, err := url.Parse("https://" + host + "/")
	if err != nil || u.Host != host || u.User != nil || u.Hostname() == "" || u.Path != "/" {
		return reference{}, false
	}
	for segment := range strings.SplitSeq(repository, "/") {
		if !isSegment(segment) {
			return reference{}, false
		}
	}
	return reference{host: host, hostname: u.Hostname(), repository: repository, digest: digest}, true
}

// isSegment reports whether s can be part of a repository's name: lower-case
// letters and digits, with separators between them.
func isSegment(s string) bool {
	if s == "" || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789._-") != "" {
		return false
	}
	const separators = "._-"
	return !strings.ContainsRune(separators, rune(s[0])) && !strings.ContainsRune(separators, rune(s[len(s)-1]))
}

package appspec

import (
	"fmt"
	"net/url"

	"github.com/fairlead/fairlead/pkg/pattern"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// OCI is an artifact in an OCI registry. The component's Source is a folder of the artifact. A component with an OCI has no
// folder in the app.
type OCI struct {
	URL string `json:"url" must:"there" alias:"repo repository registry" doc:"The repository of the artifact: oci://HOST/PATH/NAME, without a tag."`
	// Digest is the digest of the artifact's manifest, because a tag can name another artifact later.
	Digest string `json:"digest" must:"there" alias:"version ref tag sha256" doc:"The digest of the artifact: sha256: and 64 hexadecimal digits. A tag is not possible."`
	// Credentials names a secret of the build runner. Its value is the password for the registry.
	Credentials string `json:"credentials,omitempty" alias:"token password" doc:"The name of a secret of the build runner with the registry's password or token, or with USER:PASSWORD. If absent: the artifact is public."`
}

// ociScheme begins the URL of a repository in an OCI registry.
const ociScheme = "oci"

var (
	ociPath       = pattern.New(`^(/[a-z0-9]+([._-]+[a-z0-9]+)*)+$`)
	digestPattern = pattern.New(`^sha256:[0-9a-f]{64}$`)
)

// ociRepository reports whether the URL names a repository in an OCI registry, without a tag, a digest or a user.
func ociRepository(u *url.URL) bool {
	return u.Scheme == ociScheme && u.Host != "" && u.User == nil && ociPath.MatchString(u.Path) && u.RawQuery == "" && u.Fragment == ""
}

// checkOCI reports what is wrong with the OCI artifact of a component.
func checkOCI(report reporter, where string, c Component) {
	o := c.OCI
	if o == nil {
		return
	}
	if u, err := url.Parse(o.URL); err != nil || !ociRepository(u) {
		report(where+".oci.url", "invalid-oci-url", fmt.Sprintf("the artifact of component %s has no valid address in a registry", yamlnode.Quote(c.Name)),
			"Write oci://HOST/PATH/NAME, and the digest under digest.")
	}
	if !digestPattern.MatchString(o.Digest) {
		report(where+".oci.digest", "invalid-digest", fmt.Sprintf("%s is not a digest", yamlnode.Quote(o.Digest)),
			"Write sha256: and 64 hexadecimal digits. `oras resolve` prints the digest of an artifact.")
	}
	checkCredentials(report, where+".oci.credentials", o.Credentials)
}

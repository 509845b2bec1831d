package appspec

import (
	"fmt"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/pkg/pattern"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

const maxLogins = 20 // of a component

var loginHost = pattern.New(`^` + imageHost + `$`)

// checkLogins reports what is wrong with the logins of a component's build.
func checkLogins(report reporter, where string, c Component) {
	if len(c.Logins) > 0 && !c.Built() {
		report(where, "no-build", fmt.Sprintf("the component %s has logins, but no build uses them", yamlnode.Quote(c.Name)), "Remove logins, or name the place of the source under git, module or oci. A runner fetches modules that a module in the app's folder calls.")
	}
	if len(c.Logins) > maxLogins {
		report(where, "too-many-logins", fmt.Sprintf("the component has %d logins, %d are allowed", len(c.Logins), maxLogins), "")
	}
	for _, host := range slices.Sorted(maps.Keys(c.Logins)) {
		if !loginHost.MatchString(host) {
			report(where+"."+host, "invalid-host", fmt.Sprintf("%s is not a host", yamlnode.Quote(host)), "Write the host with its port, if it has one, such as ghcr.io. That of Docker Hub is docker.io.")
		}
		if c.Logins[host] == "" {
			report(where+"."+host, "invalid-name", "the login names no secret", "Write the name of a secret of the build runner, such as GHCR_LOGIN.")
		}
		checkCredentials(report, where+"."+host, c.Logins[host])
	}
}

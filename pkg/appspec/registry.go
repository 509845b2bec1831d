package appspec

import (
	"fmt"

	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/pattern"
	"github.com/fairlead/fairlead/pkg/tfmodule"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// RegistryModule is a module in a module registry. The component's Source is a folder of the module. A component with a
// RegistryModule has no folder in the app.
type RegistryModule struct {
	Address string `json:"source" must:"there" alias:"address name url" doc:"The address in the registry: NAMESPACE/NAME/SYSTEM, such as terraform-aws-modules/vpc/aws, or HOST/NAMESPACE/NAME/SYSTEM. Without a host: registry.opentofu.org."`
	// Version is one version and not a range: the versions that a range means change.
	Version string `json:"version" must:"there" alias:"tag ref" doc:"The version of the module, such as 5.8.1. Not a range."`
	// Credentials names a secret of the build runner. Its value is the token for the registry.
	Credentials string `json:"credentials,omitempty" alias:"token password" doc:"The name of a secret of the build runner with the registry's token. If absent: the registry is public."`
}

// moduleVersion matches one version. A registry has no versions with a "v".
var moduleVersion = pattern.New(`^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]{1,64})?(\+[0-9A-Za-z.-]{1,64})?$`)

// checkRegistryModule reports what is wrong with the module of a component.
func checkRegistryModule(report reporter, where string, c Component) {
	m := c.Module
	if m == nil {
		return
	}
	if t, known := component.Of(c.Type); known && !t.Module {
		report(where+".module", "not-a-module", fmt.Sprintf("the component %s is of type %s and has a module", yamlnode.Quote(c.Name), t.Name), "Only a component of type terraform has a module.")
	}
	s, err := tfmodule.ParseSource(m.Address)
	switch {
	case err != nil || s.Kind != tfmodule.FromRegistry:
		report(where+".module.source", "invalid-module-address", fmt.Sprintf("%s is not an address in a module registry", yamlnode.Quote(m.Address)),
			"Write NAMESPACE/NAME/SYSTEM, such as terraform-aws-modules/vpc/aws. For a git repository, use git in place of module.")
	case s.Folder != ".":
		report(where+".module.source", "invalid-module-address", fmt.Sprintf("the address %s names a folder of the module", yamlnode.Quote(m.Address)),
			fmt.Sprintf("Write the folder under source of the component: ./%s.", s.Folder))
	}
	if !moduleVersion.MatchString(m.Version) {
		report(where+".module.version", "invalid-module-version", fmt.Sprintf("%s is not a version of a module", yamlnode.Quote(m.Version)), "Write one version, such as 5.8.1, and not a range.")
	}
	checkCredentials(report, where+".module.credentials", m.Credentials)
}

package appspec

import (
	"fmt"
	"net/url"

	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/pattern"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// Chart is a Helm chart in a repository of charts or in an OCI registry. A component with a Chart has no folder in the
// app.
type Chart struct {
	URL  string `json:"url" must:"there" alias:"repo repository registry" doc:"The repository of charts: an https URL. Or the chart in an OCI registry: oci://HOST/PATH/NAME."`
	Name string `json:"name,omitempty" alias:"chart" doc:"The name of the chart in the repository. Not for oci://."`
	// Version is one version and not a range: the versions that a range means change.
	Version string `json:"version" must:"there" alias:"tag ref" doc:"The version of the chart, such as v1.19.1. Not a range."`
	// Credentials names a secret of the build runner. Its value is the password for the repository.
	Credentials string `json:"credentials,omitempty" alias:"token password" doc:"The name of a secret of the build runner with the repository's password or token. If absent: the repository is public."`
}

var (
	chartName    = pattern.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$`)
	chartVersion = pattern.New(`^v?[0-9]+(\.[0-9]+){0,2}([-+][0-9A-Za-z.+-]{1,100})?$`)
)

// checkChart reports what is wrong with the chart of a component.
func checkChart(report reporter, where string, c Component) {
	h := c.Chart
	if h == nil {
		return
	}
	if t, known := component.Of(c.Type); known && !t.Charts {
		report(where+".chart", "not-a-chart", fmt.Sprintf("the component %s is of type %s and has a chart", yamlnode.Quote(c.Name), t.Name), "Only a component whose source is a Helm chart has a chart.")
	}
	u, err := url.Parse(h.URL)
	isOCI := err == nil && u.Scheme == ociScheme
	switch {
	case isOCI && !ociRepository(u):
		report(where+".chart.url", "invalid-chart-url", fmt.Sprintf("the chart of component %s has no valid address in a registry", yamlnode.Quote(c.Name)), "Write oci://HOST/PATH/NAME, and the version under version.")
	case isOCI && h.Name != "":
		report(where+".chart.name", "invalid-chart-url", fmt.Sprintf("the chart of component %s is named twice", yamlnode.Quote(c.Name)), "The address oci://HOST/PATH/NAME has the name of the chart already.")
	case isOCI:
	default:
		if message, hint := checkURL(h.URL, chartField); message != "" {
			report(where+".chart.url", "invalid-chart-url", fmt.Sprintf("the repository of component %s %s", yamlnode.Quote(c.Name), message), hint)
		} else if !chartName.MatchString(h.Name) {
			report(where+".chart", "missing-field", fmt.Sprintf("the chart of component %s has no valid name", yamlnode.Quote(c.Name)), "Write the name of the chart in the repository under name.")
		}
	}
	if !chartVersion.MatchString(h.Version) {
		report(where+".chart.version", "invalid-chart-version", fmt.Sprintf("%s is not a version of a chart", yamlnode.Quote(h.Version)), "Write one version, such as 1.19.1, and not a range.")
	}
	checkCredentials(report, where+".chart.credentials", h.Credentials)
}

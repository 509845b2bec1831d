package runnerstack_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/infra/internal/infratest"
	"github.com/fairlead/fairlead/pkg/stackversion"
	"github.com/fairlead/fairlead/tools/page"
)

// Customers plan updates with the drain time on these pages, so the pages must show
// the drain time of the task.
func TestPagesShowDrainTimes(t *testing.T) {
	s := stack(t)
	drain, err := time.ParseDuration(infratest.TaskEnvironment(t, s, "RunnerTask")["FAIRLEAD_DRAIN_FOR"])
	if err != nil {
		t.Fatal(err)
	}
	containers := s.Resources["RunnerTask"].Properties["ContainerDefinitions"].([]any)
	stop := fmt.Sprint(containers[0].(map[string]any)["StopTimeout"], " s")
	for _, file := range []string{"docs/operations/run-a-runner.md", "docs/vendor/runner-on-aws.md"} {
		page.Hold(t, file, "drain", fmt.Sprint(drain.Seconds(), " s"))
	}
	for _, file := range []string{"docs/vendor/runner-on-aws.md", "docs/customer/stop.md"} {
		page.Hold(t, file, "stop", stop)
	}
}

// docs/customer/permissions.md shows the statements of each role exactly as the
// template has them.
func TestPagesShowTheGrants(t *testing.T) {
	s := stack(t)
	var roles strings.Builder
	for _, id := range []string{"RunnerRole", "ReadOnlyRole", "ProvisionRole", "DeployRole", "DeprovisionRole", "ReadOnlyStepRole", "ProvisionStepRole"} {
		fmt.Fprintf(&roles, "**`%s`**\n\n", id)
		for _, document := range s.Policies(id) {
			grants(t, &roles, document)
		}
	}
	page.Hold(t, "docs/customer/permissions.md", "roles", roles.String())
	var boundary strings.Builder
	grants(t, &boundary, s.Resources["Boundary"].Properties["PolicyDocument"])
	page.Hold(t, "docs/customer/permissions.md", "boundary", boundary.String())
}

// grants writes a table with one row for each statement of a policy.
func grants(t *testing.T, out *strings.Builder, document any) {
	t.Helper()
	statements := infratest.Statements(document)
	if len(statements) == 0 {
		t.Fatal("a policy has no statements")
	}
	out.WriteString("| statement | effect | actions | resources |\n|---|---|---|---|\n")
	for _, s := range statements {
		of := func(key string) string {
			if v, ok := s[key]; ok {
				return list(v)
			}
			return "all except " + list(s["Not"+key])
		}
		resources := of("Resource")
		if s["Condition"] != nil {
			resources += ", on conditions"
		}
		fmt.Fprintf(out, "| %v | %v | %s | %s |\n", s["Sid"], s["Effect"], of("Action"), resources)
	}
	out.WriteString("\n")
}

// list formats a string or a list of strings as code. It replaces the region, the
// account and the install of the test by REGION, ACCOUNT and INSTALL.
func list(v any) string {
	values, ok := v.([]any)
	if !ok {
		values = []any{v}
	}
	var code []string
	for _, v := range values {
		text := regexp.MustCompile(`ins_[0-9a-z]{26}`).ReplaceAllString(fmt.Sprint(v), "INSTALL")
		text = strings.NewReplacer(infratest.Region, "REGION", infratest.Account, "ACCOUNT").Replace(text)
		code = append(code, "`"+text+"`")
	}
	return strings.Join(code, ", ")
}

// The page of the stack lists the versions of its template as customers see them.
func TestPageShowsTheVersions(t *testing.T) {
	var out strings.Builder
	out.WriteString("| version | changes |\n|---|---|\n")
	for _, v := range stackversion.All() {
		fmt.Fprintf(&out, "| %s | %s |\n", v.Number, strings.Join(v.Changes, " "))
	}
	page.Hold(t, "docs/vendor/runner-on-aws.md", "versions", out.String())
}

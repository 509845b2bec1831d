package control

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/tools/page"
)

// calls maps an action to the SDK methods that need it, if the methods' names differ
// from the action's name. The list is empty if AWS authorizes the action together
// with another action, or if the code calls the action directly over HTTP.
var calls = map[string][]string{
	"dynamodb:ConditionCheckItem": {"TransactWriteItems"},
	"dynamodb:PutItem":            {"PutItem", "TransactWriteItems"},
	"dynamodb:Query":              {"Query", "QueryPaginator"},
	"s3:ListBucket":               {"ListObjectsV2", "ListObjectsV2Paginator"},
	"sqs:TagQueue":                {"CreateQueue"}, // with tags
	"sqs:SendMessage":             {"SendMessage", "SendMessageBatch"},
	"logs:TagResource":            {"CreateLogGroup"},   // with tags
	"ecr:TagResource":             {"CreateRepository"}, // with tags
	"sts:TagSession":              {"AssumeRole"},       // with tags
}

// planned lists packages that grants name and that do not exist yet. Until they exist,
// no test proves that their grants are as narrow as their calls.
var planned = []string{}

// Each permission of a function needs a call in the package that the grant names.
func TestEachGrantHasACallSite(t *testing.T) {
	missing := map[string]bool{}
	for _, function := range slices.Sorted(maps.Keys(access)) {
		for _, g := range access[function] {
			if g.By == "lambda" {
				continue // Lambda itself calls with the role, as its documentation states
			}
			text := source(t, g.By)
			if text == "" {
				missing[g.By] = true
				continue
			}
			for _, action := range g.Actions {
				_, name, _ := strings.Cut(action, ":")
				names := []string{name}
				if known, ok := calls[action]; ok {
					names = known
				}
				if !slices.ContainsFunc(names, func(n string) bool { return strings.Contains(text, "."+n+"(") || strings.Contains(text, ".New"+n+"(") }) {
					t.Errorf("%s may %s (%s), but %s does not call it", function, action, g.Sid, g.By)
				}
			}
		}
	}
	if got := slices.Sorted(maps.Keys(missing)); !slices.Equal(got, planned) {
		t.Errorf("grants name the missing packages %q, want %q", got, planned)
	}
}

// The rule that starts the archive matches exactly the events of ended jobs.
func TestArchiveRuleMatchesFinalEvents(t *testing.T) {
	var want []any
	for _, e := range store.FinalEvents() {
		want = append(want, e)
	}
	if !slices.Equal(finalEvents, want) {
		t.Errorf("the rule matches %v, the store's final events are %v", finalEvents, want)
	}
}

// dispatch gets exactly the changes that the store announces, of all items in
// docs/contributing/table-items.md; a test of the store checks that the page is
// complete. A change that the filter drops reaches no subscriber.
func TestDispatchMatchesAnnouncedItems(t *testing.T) {
	announced := 0
	fill := strings.NewReplacer("`", "", "{", "", "}", "")
	for _, row := range page.Table(t, "docs/contributing/table-items.md", "item", "partition", "sort key", "read by", "written by") {
		k := engine.Key{Partition: fill.Replace(row[1]), Sort: fill.Replace(row[2])}
		given := slices.ContainsFunc(dispatched, func(d struct{ partition, sort string }) bool {
			return strings.HasPrefix(k.Partition, d.partition) && strings.HasPrefix(k.Sort, d.sort)
		})
		if given != store.Announces(k) {
			t.Errorf("the filter passes changes of %s: %t; the store announces them: %t", k, given, store.Announces(k))
		}
		if given {
			announced++
		}
	}
	if announced != len(dispatched) {
		t.Errorf("the store announces %d kinds of items, the filter passes %d", announced, len(dispatched))
	}
}

// The pattern matches the items of the audit and no others.
func TestAuditKeysMatch(t *testing.T) {
	prefix, found := strings.TrimSuffix(auditKeys, "*"), 0
	for _, row := range page.Table(t, "docs/contributing/table-items.md", "item", "partition", "sort key", "read by", "written by") {
		of := row[0] == "AuditChain" || row[0] == "AuditEntry" || row[0] == "Checkpoint"
		if of {
			found++
		}
		if of != strings.HasPrefix(strings.Trim(row[1], "`"), prefix) {
			t.Errorf("%s of %s: %s matches it: %t", row[1], row[0], auditKeys, !of)
		}
	}
	if found != 3 {
		t.Errorf("the page has %d items of the audit", found)
	}
}

// source returns the code of a package without its tests; "" if the package does not
// exist.
func source(t *testing.T, pkg string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", pkg, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var sb strings.Builder
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		sb.Write(b)
	}
	return sb.String()
}

func TestEachGrantHasAReason(t *testing.T) {
	for function, grants := range access {
		seen := map[string]bool{}
		for _, g := range grants {
			if g.Why == "" || g.By == "" || g.Sid == "" || seen[g.Sid] {
				t.Errorf("%s: %+v has no reason, no package, or no unique Sid", function, g.Sid)
			}
			seen[g.Sid] = true
			for _, action := range g.Actions {
				if strings.Contains(action, "*") {
					t.Errorf("%s: %s allows %s", function, g.Sid, action)
				}
			}
		}
	}
}

// The session role refers to a runner's queue by its name. So infra/control and
// the packages pkg/control and pkg/queue/sqs must build the same name.
func TestBuiltRepositoryNamesMatch(t *testing.T) {
	want := fmt.Sprintf("builtFolder = %q", builtFolder)
	for _, pkg := range []string{"pkg/control/internal/catalog", "pkg/identity/awssession"} {
		if !strings.Contains(source(t, pkg), want) {
			t.Errorf("%s does not end the names of repositories of built artifacts with %q", pkg, builtFolder)
		}
	}
}

// Both policies of a session name the same objects, or a build could use none.
func TestBuildPrefixesMatch(t *testing.T) {
	if want := fmt.Sprintf("builds = %q", buildsFolder); !strings.Contains(source(t, "pkg/identity/awssession"), want) {
		t.Errorf("pkg/identity/awssession does not begin the keys of builds with %q", buildsFolder)
	}
}

func TestRunnerQueueNamesMatch(t *testing.T) {
	names := source(t, "pkg/queue/sqs")
	for constant, want := range map[string]string{"liveSuffix": liveSuffix, "deadSuffix": deadSuffix} {
		if !regexp.MustCompile(constant + ` += "` + want + `"`).MatchString(names) {
			t.Errorf("pkg/queue/sqs does not end names with %s %q", constant, want)
		}
	}
	if want := fmt.Sprintf("return %q + string(id)", runnerQueue); !strings.Contains(source(t, "pkg/control/internal/kernel"), want) {
		t.Errorf("pkg/control/internal/kernel does not begin names with %q", runnerQueue)
	}
}

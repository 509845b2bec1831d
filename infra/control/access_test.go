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

// calls are the methods of the SDK behind actions of another name; none for
// what is authorised together with another action, or spoken over HTTP.
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

// planned are the packages that grants name and that are not there yet. Until
// they are, nothing proves that their grants are no wider than their calls.
var planned = []string{}

// Each permission of a function is needed by a call in the package that the
// grant names: what nobody calls nobody may.
func TestEachGrantHasACallSite(t *testing.T) {
	missing := map[string]bool{}
	for _, function := range slices.Sorted(maps.Keys(access)) {
		for _, g := range access[function] {
			if g.By == "lambda" {
				continue // what Lambda does in the role's name, by its documentation
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
					t.Errorf("%s may %s (%s), and %s does not call it", function, action, g.Sid, g.By)
				}
			}
		}
	}
	if got := slices.Sorted(maps.Keys(missing)); !slices.Equal(got, planned) {
		t.Errorf("grants name the packages %q, which are not there; planned are %q", got, planned)
	}
}

// The archive hears of exactly the events that say that a job is over.
func TestArchiveHearsOfJobsThatAreOver(t *testing.T) {
	var want []any
	for _, e := range store.FinalEvents() {
		want = append(want, e)
	}
	if !slices.Equal(finalEvents, want) {
		t.Errorf("the rule is for %v, a job is over by %v", finalEvents, want)
	}
}

// dispatch is given exactly the changes that the store announces, of all the
// items in docs/contributing/table-items.md, which a test of the store holds complete. A change that
// the filter drops reaches no subscriber.
func TestDispatchIsGivenWhatTheStoreAnnounces(t *testing.T) {
	announced := 0
	fill := strings.NewReplacer("`", "", "{", "", "}", "")
	for _, row := range page.Table(t, "docs/contributing/table-items.md", "item", "partition", "sort key", "read by", "written by") {
		k := engine.Key{Partition: fill.Replace(row[1]), Sort: fill.Replace(row[2])}
		given := slices.ContainsFunc(dispatched, func(d struct{ partition, sort string }) bool {
			return strings.HasPrefix(k.Partition, d.partition) && strings.HasPrefix(k.Sort, d.sort)
		})
		if given != store.Announces(k) {
			t.Errorf("dispatch is given changes of %s: %t; the store announces them: %t", k, given, store.Announces(k))
		}
		if given {
			announced++
		}
	}
	if announced != len(dispatched) {
		t.Errorf("%d kinds of items are announced, %d are dispatched", announced, len(dispatched))
	}
}

// source is all of a package's code but its tests; "" if there is none.
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

func TestEachGrantIsArgued(t *testing.T) {
	for function, grants := range access {
		seen := map[string]bool{}
		for _, g := range grants {
			if g.Why == "" || g.By == "" || g.Sid == "" || seen[g.Sid] {
				t.Errorf("%s: %+v lacks a reason, or a name of its own", function, g.Sid)
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

// A runner may use the queue of its own by name, so the name must be the one
// that it has.
func TestRunnerQueuesAreCalledWhatTheirUsersCallThem(t *testing.T) {
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

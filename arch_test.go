package fairlead_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/component"
)

const module = "github.com/fairlead/fairlead/"

// rule says what some packages may import of this module. A pattern is a path
// below the module, in which * stands for one segment and a final /... for
// everything at and below. A package below an internal folder follows the rule
// of the folder's owner, unless a rule names it; the compiler sees to who may
// import it.
type rule struct {
	packages string // patterns, separated by spaces
	may      string // patterns, separated by spaces
	why      string
}

// rules is the import table of docs/contributing/architecture.md. Every package of the
// module has exactly one.
var rules = []rule{
	{"pkg/fairlead", "", "the vocabulary is below everything"},
	{"pkg/retry", "", "how often something is tried knows nothing of what"},
	{"pkg/safefile", "", "how a file is replaced knows nothing of what is in it"},
	{"pkg/config", "", "a binary's environment is declared without what reads it"},
	{"pkg/api/wire", "", "the API's client is built from these types alone, also by others"},
	{"pkg/job", "pkg/fairlead", "the state machine is pure: states and events in, states out"},
	{"pkg/component", "pkg/job", "what there is to know of a type of component is data"},
	{"pkg/commandline", "pkg/fairlead", "how an action is typed is for those who show advice, never for those who give it"},
	{"pkg/graph", "pkg/fairlead pkg/job", "the order of components is pure"},
	{"pkg/placement", "pkg/fairlead", "which runner may take a job is pure"},
	{"pkg/deployment", "pkg/fairlead pkg/job pkg/graph pkg/component", "how a deployment proceeds is pure"},
	{"pkg/diagnosis", "pkg/fairlead pkg/job pkg/deployment pkg/component", "what a person is told is pure: facts and a time go in, words come out"},
	{"pkg/diagnosis/diagnosistest", "pkg/diagnosis pkg/fairlead pkg/job pkg/deployment", "situations for the tests of all who show them"},
	{"events", "pkg/fairlead pkg/job", "what crosses a wire is data"},
	{"pkg/yamlnode", "pkg/fairlead", "how a configuration is read knows no configuration"},
	{"pkg/runnerspec", "pkg/fairlead pkg/yamlnode", "a runner's configuration is read and checked without a control plane"},
	{"pkg/yamlnode/schematest", "pkg/yamlnode", "a schema is made of what reads the file"},
	{"pkg/runnerspec/runnerspectest", "pkg/runnerspec pkg/yamlnode", "tests hold pages and agents to the fields that there are"},
	{"pkg/tfmodule", "", "how the tools read a module's files knows neither apps nor runners"},
	{"pkg/appspec", "pkg/fairlead pkg/component pkg/graph pkg/tfmodule pkg/yamlnode", "an app is read and checked without a control plane"},
	{"pkg/identity", "pkg/fairlead", "who is calling is decided before, and apart from, what they may do"},
	{"pkg/identity/awsiam", "pkg/fairlead", "a proof is verified, and a role matched, without an SDK and without a runner"},
	{"pkg/identity/awsiam/sign", "pkg/identity/awsiam pkg/fairlead", "the runner's half of a proof: it signs and sends nothing"},
	{"pkg/identity/oidc", "pkg/fairlead", "a token is verified, and a trust matched, without a store and without a runner"},
	{"pkg/identity/awssession", "pkg/identity pkg/fairlead pkg/awsapi", "what a runner's session may is rendered from its scope alone"},
	{"pkg/identity/accesstest", "pkg/identity pkg/fairlead", "the suite tests the contract, on any granter"},
	{"pkg/identity/oidctest", "", "an issuer for tests knows the standard, not us"},
	{"pkg/identity/ststest", "", "a server for tests knows AWS, not us"},
	{"pkg/seal", "pkg/fairlead pkg/safefile", "encryption knows bytes, not nouns"},
	{"pkg/seal/sealtest", "pkg/seal pkg/fairlead", "the suite tests the contract, on any sealer"},
	{"pkg/seal/kms", "pkg/seal pkg/fairlead pkg/awsapi", "an adapter knows its driver interface only"},
	{"pkg/seal/kms/kmstest", "", "a server for tests knows the wire only"},
	{"pkg/transport", "", "callers of any kind share how a control plane is reached, and what is not sent in clear"},
	{"pkg/artifact", "pkg/artifact/fetch pkg/transport pkg/fairlead", "the runner and the control plane exchange artifacts by digest and nothing else"},
	{"pkg/artifact/fetch", "pkg/artifact/internal/... pkg/transport pkg/fairlead pkg/safefile", "every job's process pays for what this imports"},
	{"pkg/artifact/ecr", "pkg/identity pkg/fairlead pkg/awsapi", "an adapter knows its driver interface only"},

	{"pkg/store/engine", "pkg/fairlead", "an engine knows items and preconditions, not nouns"},
	{"pkg/store/enginetest", "pkg/store/engine pkg/fairlead", "the suite tests the contract, on any engine"},
	{"pkg/store/sqlite pkg/store/dynamo", "pkg/store/engine pkg/fairlead pkg/sqlitedb pkg/awsapi pkg/retry", "an adapter knows its driver interface only"},
	{"pkg/store/dynamo/dynamotest", "pkg/store/dynamo", "tests make the tables that infrastructure makes elsewhere"},
	{"pkg/store", "pkg/store/engine pkg/fairlead pkg/component pkg/job pkg/deployment pkg/placement pkg/identity/awsiam pkg/identity/oidc events", "the typed store works on any engine"},

	{"pkg/queue", "pkg/fairlead pkg/job events", "the queue is an interface"},
	{"pkg/queue/queuetest", "pkg/queue pkg/queue/internal/... pkg/fairlead", "the suite tests the contract, on any queue"},
	{"pkg/queue/sqlite pkg/queue/sqs", "pkg/queue pkg/queue/internal/... pkg/fairlead pkg/sqlitedb pkg/awsapi", "an adapter knows its driver interface only"},
	{"pkg/joblog", "pkg/fairlead pkg/job events", "the job log is an interface"},
	{"pkg/joblog/joblogtest", "pkg/joblog pkg/joblog/internal/... pkg/fairlead", "the suite tests the contract, on any log"},
	{"pkg/joblog/sqlite pkg/joblog/cloudwatch pkg/joblog/dynamo", "pkg/joblog pkg/joblog/internal/... pkg/fairlead pkg/sqlitedb pkg/awsapi pkg/retry", "an adapter knows its driver interface only"},
	{"pkg/joblog/archive", "pkg/joblog pkg/blob pkg/fairlead", "an archive stands on any log that gives its bytes away, and on any blob store"},
	{"pkg/blob", "pkg/fairlead", "the blob store is an interface"},
	{"pkg/blob/blobtest", "pkg/blob pkg/fairlead", "the suite tests the contract, on any blob store"},
	{"pkg/blob/dir pkg/blob/s3", "pkg/blob pkg/fairlead pkg/awsapi", "an adapter knows its driver interface only"},
	{"pkg/eventbus", "pkg/fairlead events", "the event bus is an interface"},
	{"pkg/eventbus/eventbustest", "pkg/eventbus pkg/fairlead events", "the suite tests the contract, on any bus"},
	{"pkg/eventbus/queuebus", "pkg/eventbus pkg/queue pkg/fairlead events", "a bus of one subscriber stands on any queue"},
	{"pkg/eventbus/eventbridge", "pkg/eventbus pkg/fairlead pkg/awsapi events", "an adapter knows its driver interface only"},
	{"pkg/webhook", "pkg/fairlead events", "what an endpoint is sent, and how it is signed, knows no network"},
	{"pkg/webhook/webhooktest", "pkg/webhook pkg/fairlead", "the suite tests the contract, on any sender"},
	{"pkg/webhook/https", "pkg/webhook pkg/fairlead", "an adapter knows its driver interface only"},
	{"pkg/sqlitedb", "pkg/fairlead pkg/safefile", "the SQLite adapters share how a file is opened, nothing else"},
	{"pkg/awsapi", "pkg/fairlead", "the AWS adapters share how long a request takes and what an error means, nothing else"},

	{"pkg/control", "pkg/fairlead pkg/component pkg/job pkg/graph pkg/placement pkg/runnerspec pkg/deployment pkg/diagnosis pkg/appspec pkg/identity pkg/identity/awsiam pkg/identity/oidc pkg/seal pkg/artifact " +
		"pkg/store pkg/store/engine pkg/queue pkg/joblog pkg/blob pkg/eventbus pkg/webhook events pkg/control/internal/...",
		"use cases run on any adapter, so they know none"},
	{"pkg/control/internal/kernel", "pkg/fairlead pkg/job pkg/identity pkg/identity/awsiam pkg/identity/oidc pkg/seal pkg/store pkg/store/engine pkg/queue pkg/joblog pkg/blob events",
		"the commit knows no use case"},
	{"pkg/control/internal/runners", "events pkg/control/internal/kernel pkg/fairlead pkg/identity pkg/identity/awsiam pkg/identity/oidc pkg/job pkg/placement pkg/queue pkg/runnerspec pkg/store pkg/store/engine",
		"of the rooms of control, each knows those before it: runners know no app and no job"},
	{"pkg/control/internal/catalog", "events pkg/appspec pkg/component pkg/control/internal/kernel pkg/control/internal/runners pkg/deployment pkg/diagnosis pkg/fairlead pkg/identity pkg/identity/awsiam pkg/job pkg/placement pkg/runnerspec pkg/store",
		"apps and installs know who runs them, and neither states nor jobs"},
	{"pkg/control/internal/state", "events pkg/blob pkg/control/internal/catalog pkg/control/internal/kernel pkg/control/internal/runners pkg/deployment pkg/fairlead pkg/job pkg/runnerspec pkg/store",
		"states and their locks know apps and installs, and no deployment but by its record"},
	{"pkg/control/internal/execution", "events pkg/appspec pkg/component pkg/control/internal/catalog pkg/control/internal/kernel pkg/control/internal/runners pkg/control/internal/state pkg/deployment pkg/diagnosis pkg/fairlead pkg/graph pkg/identity pkg/job pkg/joblog pkg/placement pkg/queue pkg/runnerspec pkg/store pkg/store/engine",
		"the last room: deployments and jobs know all that is before them"},
	{"pkg/control/controltest", "pkg/control pkg/identity pkg/fairlead", "the suites test the contracts, on any registry and any keeper of logs"},
	{"pkg/api", "pkg/control pkg/fairlead pkg/identity pkg/identity/awsiam pkg/identity/oidc pkg/api/wire pkg/job pkg/deployment pkg/diagnosis pkg/appspec pkg/placement pkg/runnerspec events",
		"the API renders what control decides, in the words of the pure packages, and never sees how it is stored"},
	{"pkg/api/client", "pkg/api/wire pkg/transport", "a client is built without a server"},
	{"pkg/local", "pkg/... events", "local is wiring: all of it, on SQLite"},
	{"functions/...", "functions/... pkg/... events", "a function is wiring"},

	{"runner/...", "runner/... pkg/fairlead pkg/component pkg/job events pkg/queue/... pkg/joblog/... pkg/artifact pkg/artifact/fetch pkg/api/client pkg/api/wire pkg/transport pkg/config pkg/retry pkg/safefile pkg/runnerspec pkg/tfmodule pkg/identity/awsiam/...",
		"the runner is in the customer's account: it has the API and nothing of the control plane"},
	{"test/sim", "test/... runner/... pkg/... events", "the simulator is all of it, in one process"},
	{"test/plane", "test/proxy pkg/... events", "it is the control plane, in the process of a test"},
	{"test/proxy", "pkg/api/wire", "what fails on the way to a control plane knows the routes and nothing behind them"},
	{"test/hosts", "", "what answers under a name of the internet does not depend on whose it is"},
	{"test/tofu", "", "where a tool is does not depend on who runs it"},
	{"test/e2e test/soak/...", "test/... pkg/api/client pkg/api/wire pkg/local", "what drives whole programs is a client of the API; the soak starts what pkg/local wires"},
	{"cmd/...", "cmd/... pkg/api/client pkg/api/wire pkg/transport pkg/retry pkg/safefile pkg/appspec pkg/runnerspec pkg/yamlnode pkg/artifact pkg/config pkg/commandline pkg/fairlead pkg/local runner/agent/... runner/step",
		"the CLI is a client; `dev` and `server` start what pkg/local wires"},
	{"infra/...", "infra/... pkg/config pkg/store/dynamo", "infrastructure knows the environment and the table's schema, whose names are the adapter's"},
	{"bench/...", "bench/... pkg/... events runner/agent", "a benchmark measures what there is; a thousand agents are in its process, as processes they would take 20 GiB"},
	{"tools/...", "tools/...", "a tool of the workshop is no part of the product"},
}

// planned are patterns of rules for packages that are not there yet. One that
// is there, or that no rule has, fails the test: the list shrinks to nothing.
var planned = []string{}

// ban is what some packages may never reach.
type ban struct {
	packages string // patterns, separated by spaces
	never    string // import paths, separated by spaces; "module/" stands for this module; a final /... as in patterns
	indirect bool   // also not by way of others
	except   string // patterns of packages that may
	why      string
}

var bans = []ban{
	{packages: "runner/...", never: "module/pkg/store/... module/pkg/control/... module/pkg/local/...", indirect: true,
		why: "the runner, in the customer's account, must hold no code that writes the vendor's table"},
	{packages: "runner/...", never: "github.com/aws/aws-sdk-go-v2/service/dynamodb/...", indirect: true,
		why: "nothing of the vendor's table is a runner's, and its tables cost each step's process half a millisecond"},
	{packages: "pkg/api/client pkg/api/wire", never: "module/pkg/fairlead/... module/pkg/control/... module/pkg/store/... module/events/...", indirect: true,
		why: "others build on the client; it must bring nothing of the server along"},
	{packages: "runner runner/...", except: "runner/step runner/plugin/...", never: "module/runner/plugin/*",
		why: "the step alone runs plugins: what others must know of a type of component is its row in pkg/component"},
	{packages: "cmd/... test/e2e test/soak/...", never: "module/pkg/control/... module/pkg/store/...",
		why: "the CLI goes through the API, as everybody does"},
	{packages: "pkg/fairlead pkg/job pkg/component pkg/graph pkg/placement pkg/deployment pkg/diagnosis pkg/yamlnode pkg/runnerspec",
		never: "os os/exec net net/http database/sql io/ioutil github.com/aws/...",
		why:   "pure packages decide; they do no input or output, and are tested without any"},
	{packages: "...", except: "pkg/*/dynamo/... pkg/*/sqs pkg/*/cloudwatch pkg/*/s3 pkg/*/kms pkg/*/eventbridge pkg/*/ecr pkg/identity/... runner/internal/awsrole runner/plugin/terraform/statebucket runner/executor/... tools/...",
		never: "github.com/aws/aws-sdk-go-v2/service/...",
		why:   "a cloud service's client is used in an adapter or an executor, which is made from an aws.Config, and nowhere else"},
	{packages: "...", except: "pkg/sqlitedb pkg/*/sqlite bench", never: "database/sql modernc.org/sqlite/...",
		why: "SQL is an adapter's business; a benchmark loses a message where nobody else can"},
	{packages: "...", except: "cmd/... runner", never: "github.com/spf13/cobra/...",
		why: "only a command line parses a command line"},
	{packages: "...", except: "pkg/api", never: "github.com/danielgtaylor/huma/...",
		why: "domain types are not made for the API's framework"},
	{packages: "pkg/... runner/... cmd/... functions/...", except: "pkg/*test pkg/*/*test pkg/*/*/*test functions/internal/*test runner/*/*test runner/*/*/*test cmd/*/internal/*test",
		never: "testing testing/... net/http/httptest pgregory.net/rapid/... module/pkg/*/*test module/pkg/*/*/*test module/functions/internal/*test module/runner/*/*test module/runner/*/*/*test module/test/...",
		why:   "a binary carries no test code"},
}

// pkg is what the go command says of a package.
type pkg struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Ignored    []string `json:"IgnoredGoFiles"` // of other platforms and tags
	CgoFiles   []string
	Imports    []string
	Deps       []string
	Standard   bool
	Error      *struct{ Err string }
}

// listPackages returns the packages of this module by their path below it,
// without what is only tests. The root has none.
func listPackages(t *testing.T) map[string]pkg {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Dir,GoFiles,IgnoredGoFiles,CgoFiles,Imports,Deps,Standard,Error", "./...")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
	}
	found := map[string]pkg{}
	for dec := json.NewDecoder(&stdout); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return found
		} else if err != nil {
			t.Fatal(err)
		}
		if rel, ok := strings.CutPrefix(p.ImportPath, module); ok && len(p.GoFiles)+len(p.CgoFiles) > 0 {
			found[rel] = p
		}
	}
}

// match reports whether the pattern covers the path.
func match(pattern, name string) bool {
	if pattern == "..." {
		return true
	}
	prefix, deep := strings.CutSuffix(pattern, "/...")
	if deep {
		segments := strings.Split(name, "/")
		if n := strings.Count(prefix, "/") + 1; len(segments) > n {
			name = strings.Join(segments[:n], "/")
		}
		pattern = prefix
	}
	ok, err := path.Match(pattern, name)
	return err == nil && ok
}

func matchAny(patterns, name string) bool {
	return slices.ContainsFunc(strings.Fields(patterns), func(p string) bool { return match(p, name) })
}

// names reports whether the rule covers the package other than by a final /...
func (r rule) names(name string) bool {
	return slices.ContainsFunc(strings.Fields(r.packages), func(p string) bool { return !strings.HasSuffix(p, "...") && match(p, name) })
}

// rulesFor returns the rules that name the package, or else those that cover
// it, or else its owner's.
func rulesFor(name string) (found []rule) {
	for _, r := range rules {
		if r.names(name) {
			found = append(found, r)
		}
	}
	if len(found) > 0 {
		return found
	}
	for _, r := range rules {
		if matchAny(r.packages, name) {
			found = append(found, r)
		}
	}
	if i := strings.LastIndex(name, "/internal/"); len(found) == 0 && i >= 0 {
		return rulesFor(name[:i])
	}
	return found
}

// hasRule reports whether a rule names the package itself. Then even its neighbours
// below the same folder import it only if their rules say so.
func hasRule(name string) bool {
	return slices.ContainsFunc(rules, func(r rule) bool { return r.names(name) })
}

// owner is the folder that an internal package belongs to, or the package.
func owner(name string) string {
	before, _, _ := strings.Cut(name, "/internal/")
	return before
}

func TestImportTable(t *testing.T) {
	for name, p := range listPackages(t) {
		found := rulesFor(name)
		if len(found) != 1 {
			t.Errorf("%s is covered by %d rules of the import table; give it one", name, len(found))
			continue
		}
		for _, imported := range p.Imports {
			rel, ours := strings.CutPrefix(imported, module)
			// Support of tests takes programs and servers from the workshop.
			if (strings.HasSuffix(name, "test") || matchAny("test/...", name)) && matchAny("tools/...", rel) {
				continue
			}
			if ours && !matchAny(found[0].may, rel) && (owner(rel) != owner(name) || strings.Contains(rel, "/internal/") && hasRule(rel)) {
				t.Errorf("%s imports %s, and may import only [%s]: %s", name, rel, found[0].may, found[0].why)
			}
		}
	}
}

func TestBans(t *testing.T) {
	packages := listPackages(t)
	for _, b := range bans {
		never := strings.ReplaceAll(b.never, "module/", module)
		for name, p := range packages {
			if !matchAny(b.packages, name) || matchAny(b.except, name) {
				continue
			}
			reach := p.Imports
			if b.indirect {
				reach = p.Deps
			}
			for _, imported := range reach {
				if matchAny(never, imported) {
					t.Errorf("%s reaches %s: %s", name, imported, b.why)
				}
			}
		}
	}
}

// wiring are the types of control that are put together with a store, and are nothing
// that a use case takes or gives.
var wiring = map[string]bool{"Control": true, "Deps": true, "Dispatcher": true, "Deliverer": true, "Record": true}

// TestUseCasesTakeAndGiveRecordsOfTheirOwn: how something is stored is nothing that a
// caller of control can come to depend on. A type of control is no alias of one of the
// store, and no field and no method of it has one.
func TestUseCasesTakeAndGiveRecordsOfTheirOwn(t *testing.T) {
	packages := listPackages(t)
	if slices.Contains(packages["pkg/api"].Imports, module+"pkg/store") {
		t.Error("pkg/api imports pkg/store")
	}
	declared := map[string]map[string]ast.Expr{} // by package and name
	parse := func(name string, each func(ast.Decl)) {
		for _, file := range packages[name].GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(packages[name].Dir, file), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range f.Decls {
				each(d)
			}
		}
	}
	rooms := []string{"kernel", "runners", "catalog", "state", "execution"}
	for _, room := range append(rooms, "") {
		declared[room] = map[string]ast.Expr{}
		parse(strings.TrimSuffix("pkg/control/internal/"+room, "/internal/"), func(d ast.Decl) {
			if g, ok := d.(*ast.GenDecl); ok {
				for _, s := range g.Specs {
					if s, ok := s.(*ast.TypeSpec); ok {
						declared[room][s.Name.Name] = s.Type
					}
				}
			}
		})
	}
	stored := func(n ast.Node) (found string) {
		ast.Inspect(n, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "store" {
					found = "store." + s.Sel.Name
				}
			}
			return found == ""
		})
		return found
	}
	for name, of := range declared[""] {
		for { // to what it is an alias of
			alias, ok := of.(*ast.SelectorExpr)
			if !ok || declared[alias.X.(*ast.Ident).Name] == nil {
				break
			}
			of = declared[alias.X.(*ast.Ident).Name][alias.Sel.Name]
		}
		if s, ok := of.(*ast.StructType); ok {
			s.Fields.List = slices.DeleteFunc(s.Fields.List, func(f *ast.Field) bool { return len(f.Names) > 0 && !f.Names[0].IsExported() })
		}
		if found := stored(of); found != "" && ast.IsExported(name) && !wiring[name] {
			t.Errorf("control.%s has a %s", name, found)
		}
	}
	// What is promoted from the kernel is for tests and the functions, which wire it.
	callable := map[string]bool{"Control": true, "Fleet": true, "Catalog": true, "States": true, "Execution": true}
	for _, room := range append(rooms[1:], "") {
		parse(strings.TrimSuffix("pkg/control/internal/"+room, "/internal/"), func(d ast.Decl) {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil || !f.Name.IsExported() {
				return
			}
			star, ok := f.Recv.List[0].Type.(*ast.StarExpr)
			if !ok {
				return
			}
			if of, ok := star.X.(*ast.Ident); ok && callable[of.Name] {
				if found := stored(f.Type); found != "" {
					t.Errorf("the use case %s takes or gives a %s", f.Name, found)
				}
			}
		})
	}
}

func TestRulesCoverPackages(t *testing.T) {
	packages := listPackages(t)
	covers := func(pattern string) bool {
		for name := range packages {
			if match(pattern, name) {
				return true
			}
		}
		return false
	}
	known := map[string]bool{}
	for _, r := range rules {
		for _, pattern := range strings.Fields(r.packages) {
			known[pattern] = true
			if !covers(pattern) && !slices.Contains(planned, pattern) {
				t.Errorf("a rule names %s, which is not there", pattern)
			}
		}
		for _, pattern := range strings.Fields(r.may) {
			known[pattern] = true
			if !covers(pattern) && !slices.Contains(planned, pattern) {
				t.Errorf("the rule of %s allows %s, which is not there", r.packages, pattern)
			}
		}
	}
	for _, pattern := range planned {
		switch {
		case !known[pattern]:
			t.Errorf("%s is planned without a rule", pattern)
		case covers(pattern):
			t.Errorf("%s is there now: take it off the planned ones", pattern)
		}
	}
}

// The comment is where a reader begins; two of them are two beginnings.
func TestEveryPackageHasOneComment(t *testing.T) {
	for name, p := range listPackages(t) {
		var commented []string
		for _, file := range slices.Concat(p.GoFiles, p.CgoFiles) {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Error(err)
				continue
			}
			if f.Doc == nil {
				continue
			}
			commented = append(commented, file)
			if text := f.Doc.Text(); f.Name.Name != "main" && !strings.HasPrefix(text, "Package "+f.Name.Name+" ") {
				t.Errorf("%s: the comment in %s does not begin with %q", name, file, "Package "+f.Name.Name)
			}
		}
		if len(commented) != 1 {
			t.Errorf("%s has %d package comments, in %q; want one", name, len(commented), commented)
		}
	}
}

// alsoNames are files in which the name of a type of component means something else.
var alsoNames = map[string]string{
	"cmd/fairlead/internal/cli/dev.go": "a program on the PATH",
	"pkg/appspec/syntax.go":            "a block of a module's language",
	"pkg/tfmodule/tfmodule.go":         "a block of a module's language",
}

// TestATypeOfComponentIsNamedInItsRow: what hangs on a type is a column of the table in
// pkg/component. A comparison elsewhere would have to be found again for the next type.
func TestATypeOfComponentIsNamedInItsRow(t *testing.T) {
	found := map[string]bool{}
	for name, p := range listPackages(t) {
		if strings.HasSuffix(name, "test") || matchAny("pkg/component runner/plugin/* test/... bench/... tools/... examples/...", name) {
			continue
		}
		for _, file := range p.GoFiles {
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, file), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				lit, ok := n.(*ast.BasicLit)
				if !ok || lit.Kind != token.STRING {
					return true
				}
				text, err := strconv.Unquote(lit.Value)
				if err != nil || !slices.Contains(component.Names(), text) {
					return true
				}
				at := name + "/" + file
				found[at] = true
				if alsoNames[at] == "" {
					t.Errorf("%s:%d names the type of component %q; make what hangs on it a column of pkg/component", at, fset.Position(lit.Pos()).Line, text)
				}
				return true
			})
		}
	}
	for at := range alsoNames {
		if !found[at] {
			t.Errorf("%s names no type any more: take it off the list", at)
		}
	}
}

func TestPatterns(t *testing.T) {
	tests := []struct {
		pattern, name string
		want          bool
	}{
		{"pkg/job", "pkg/job", true},
		{"pkg/job", "pkg/job/x", false},
		{"pkg/job", "pkg/joblog", false},
		{"pkg/*/sqlite", "pkg/store/sqlite", true},
		{"pkg/*/sqlite", "pkg/store/x/sqlite", false},
		{"cmd/...", "cmd", true},
		{"cmd/...", "cmd/fairlead/internal/cli", true},
		{"cmd/...", "cmdx", false},
		{"os", "os/exec", false},
		{"...", "anything/at/all", true},
	}
	for _, test := range tests {
		if got := match(test.pattern, test.name); got != test.want {
			t.Errorf("match(%q, %q) = %t", test.pattern, test.name, got)
		}
	}
}

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

// rule lists the packages of this module that the rule's packages may import. A pattern is
// a path below the module. In a pattern * matches one segment, and a final /... matches the
// folder and everything below it. A package below an internal folder follows the rule of
// the folder's owner, unless a rule names the package. The compiler checks which packages
// may import an internal package.
type rule struct {
	packages string // patterns of the importing packages, separated by spaces
	may      string // patterns of the packages that they may import, separated by spaces
	why      string
}

// rules is the import table of docs/contributing/architecture.md. Every package of the
// module has exactly one rule.
var rules = []rule{
	{"pkg/fairlead", "", "all packages use these types"},
	{"pkg/stackversion", "", "the control plane and the template share only the list of the template's versions"},
	{"pkg/awsaction", "", "the app's file, the control plane and the template share only the rule of actions"},
	{"pkg/pattern", "", "a regular expression that is compiled at its first use needs nothing of this module"},
	{"pkg/retry", "", "retries do not depend on the retried operation"},
	{"pkg/safefile", "", "replacing a file does not depend on its content"},
	{"pkg/config", "", "the environment of a binary is declared without the code that reads it"},
	{"pkg/changeset", "", "plugins of others build change sets, and policies read them, with these types only"},
	{"pkg/sessionpolicy", "pkg/changeset", "a session policy is made of changes, by a step, a policy and tests"},
	{"pkg/pluginprotocol", "pkg/changeset pkg/fairlead", "programs of others speak the protocol with these types only"},
	{"pkg/pluginprotocol/conformance", "pkg/pluginprotocol pkg/fairlead", "an author of a plugin runs the suite without a control plane"},
	{"pkg/pluginprotocol/serve", "pkg/pluginprotocol pkg/changeset pkg/fairlead", "a plugin of others is built with these packages only"},
	{"pkg/api/wire", "pkg/changeset", "the API's clients, also those of others, need these types only"},
	{"pkg/job", "pkg/fairlead", "the state machine is pure: states and events in, states out"},
	{"pkg/component", "pkg/job", "everything specific to a component type is data"},
	{"pkg/commandline", "pkg/fairlead", "only code that displays actions renders them as commands, not the code that chooses them"},
	{"pkg/graph", "pkg/fairlead pkg/job", "the order of components is pure"},
	{"pkg/placement", "pkg/fairlead", "the choice of a runner is pure"},
	{"pkg/access", "pkg/fairlead pkg/placement", "who may do what is pure: a principal, an action and an object in, yes or no out"},
	{"pkg/schedule", "", "the times of a schedule are pure"},
	{"pkg/deployment", "pkg/fairlead pkg/job pkg/graph pkg/component", "the progress of a deployment is pure"},
	{"pkg/diagnosis", "pkg/fairlead pkg/job pkg/deployment pkg/component", "a diagnosis is pure: facts and a time in, texts and actions out"},
	{"pkg/diagnosis/diagnosistest", "pkg/diagnosis pkg/fairlead pkg/job pkg/deployment", "situations for the tests of all packages that display diagnoses"},
	{"events", "pkg/fairlead pkg/job", "messages on a wire are data"},
	{"pkg/jobvalues", "events pkg/appspec pkg/fingerprint", "the control plane and the step join a spec and its values with the same code"},
	{"pkg/fingerprint", "pkg/yamlnode", "the control plane now, and the customer's side later, make a fingerprint with the same code"},
	{"pkg/installkey", "pkg/fairlead", "the CLI and the customer's side encrypt with the same code, and the control plane needs only the format"},
	{"pkg/audit", "", "anybody verifies an export of the audit, without a control plane and without its types"},
	{"pkg/approval", "pkg/fairlead pkg/changeset pkg/fingerprint", "the customer's side signs and verifies without a control plane"},
	{"pkg/statefile", "pkg/fairlead pkg/installkey", "the CLI and the step encrypt a state with the same code, and the control plane reads only its head"},
	{"pkg/yamlnode", "pkg/fairlead", "the reader of YAML does not depend on a configuration's fields"},
	{"pkg/runnerspec", "pkg/fairlead pkg/yamlnode", "a runner's configuration is read and checked without a control plane"},
	{"pkg/yamlnode/schematest", "pkg/yamlnode", "a schema is generated from the reader of the file"},
	{"pkg/runnerspec/runnerspectest", "pkg/runnerspec pkg/yamlnode", "tests compare pages and agents with the existing fields"},
	{"pkg/tfmodule", "", "the reader of a module's files depends neither on apps nor on runners"},
	{"pkg/policy", "pkg/approval pkg/bundle pkg/changeset pkg/component pkg/job pkg/sessionpolicy pkg/yamlnode", "a customer's policy is read and evaluated without a runner and without a control plane"},
	{"pkg/bundle", "pkg/fairlead pkg/yamlnode", "the CLI, the reader of apps, the plugins and policies know images and their lock, and nothing else of each other"},
	{"pkg/appspec", "pkg/awsaction pkg/bundle pkg/changeset pkg/fairlead pkg/component pkg/graph pkg/runnerspec pkg/schedule pkg/tfmodule pkg/yamlnode", "an app is read and checked without a control plane"},
	{"pkg/identity", "pkg/fairlead pkg/cancelmark pkg/identity/awsiam/bound", "authentication precedes authorization and is separate from it"},
	{"pkg/identity/awsiam", "pkg/fairlead", "a proof is verified and a role matched without an SDK and without a runner"},
	{"pkg/identity/awsiam/bound", "", "the agent and the control plane bind and read a token in the same way, and need nothing else for it"},
	{"pkg/identity/awsiam/sign", "pkg/identity/awsiam pkg/fairlead", "the runner's half of a proof: it signs and sends nothing"},
	{"pkg/identity/oidc", "pkg/fairlead", "a token is verified and a trust matched without a store and without a runner"},
	{"pkg/identity/awssession", "pkg/identity pkg/cancelmark pkg/fairlead pkg/awsapi", "the permissions of a runner's session follow from its scope alone"},
	{"pkg/identity/accesstest", "pkg/identity pkg/cancelmark pkg/fairlead", "the conformance suite runs on any granter"},
	{"pkg/identity/oidctest", "", "an issuer for tests implements the standard and needs nothing of this module"},
	{"pkg/identity/ststest", "", "a server for tests implements AWS's API and needs nothing of this module"},
	{"pkg/seal", "pkg/fairlead pkg/safefile", "encryption handles bytes, not records"},
	{"pkg/seal/sealtest", "pkg/seal pkg/fairlead", "the conformance suite runs on any sealer"},
	{"pkg/approval/kms", "pkg/approval pkg/fairlead pkg/awsapi", "a driver imports only its interface"},
	{"pkg/seal/kms", "pkg/seal pkg/fairlead pkg/awsapi", "a driver imports only its interface"},
	{"pkg/seal/kms/kmstest", "", "a server for tests implements KMS's API and needs nothing of this module"},
	{"pkg/tracing", "", "traces do not depend on what they describe"},
	{"pkg/transport", "", "all clients share how they reach a control plane and what they never send unencrypted"},
	{"pkg/artifact", "pkg/artifact/fetch pkg/transport pkg/fairlead", "the runner and the control plane exchange only artifacts, by digest"},
	{"pkg/artifact/fetch", "pkg/artifact/internal/... pkg/transport pkg/fairlead pkg/safefile", "each import slows down the start of every job's process"},
	{"pkg/artifact/ecr", "pkg/identity pkg/fairlead pkg/awsapi", "a driver imports only its interface"},

	{"pkg/store/engine", "pkg/fairlead", "an engine handles items and preconditions, not records"},
	{"pkg/store/enginetest", "pkg/store/engine pkg/fairlead", "the conformance suite runs on any engine"},
	{"pkg/store/sqlite pkg/store/dynamo", "pkg/store/engine pkg/fairlead pkg/sqlitedb pkg/awsapi pkg/retry", "a driver imports only its interface"},
	{"pkg/store/dynamo/dynamotest", "pkg/store/dynamo pkg/joblog/dynamo pkg/cancelmark", "tests create the tables; elsewhere the infrastructure does"},
	{"pkg/store", "pkg/access pkg/audit pkg/store/engine pkg/fairlead pkg/component pkg/job pkg/deployment pkg/placement pkg/identity/awsiam pkg/identity/oidc events", "the typed store works on any engine"},

	{"pkg/queue", "pkg/fairlead pkg/job events", "the queue is an interface"},
	{"pkg/queue/queuetest", "pkg/queue pkg/queue/internal/... pkg/fairlead", "the conformance suite runs on any queue"},
	{"pkg/queue/memory", "pkg/queue pkg/queue/internal/...", "a driver imports only its interface"},
	{"pkg/queue/sqlite pkg/queue/sqs", "pkg/queue pkg/queue/internal/... pkg/fairlead pkg/sqlitedb pkg/awsapi", "a driver imports only its interface"},
	{"pkg/joblog", "pkg/fairlead pkg/job events", "the job log is an interface"},
	{"pkg/joblog/joblogtest", "pkg/joblog pkg/joblog/internal/... pkg/fairlead", "the conformance suite runs on any log"},
	{"pkg/joblog/sqlite pkg/joblog/cloudwatch pkg/joblog/dynamo", "pkg/joblog pkg/joblog/internal/... pkg/fairlead pkg/sqlitedb pkg/awsapi pkg/retry", "a driver imports only its interface"},
	{"pkg/joblog/archive", "pkg/joblog pkg/blob pkg/fairlead", "an archive works with any log whose bytes can be moved and with any blob store"},
	{"pkg/blob", "pkg/fairlead", "the blob store is an interface"},
	{"pkg/blob/blobtest", "pkg/blob pkg/fairlead", "the conformance suite runs on any blob store"},
	{"pkg/blob/dir pkg/blob/s3", "pkg/blob pkg/fairlead pkg/awsapi", "a driver imports only its interface"},
	{"pkg/cancelmark", "pkg/fairlead", "the control plane writes cancel markers and steps read them"},
	{"pkg/cancelmark/dynamo", "pkg/cancelmark pkg/fairlead pkg/awsapi", "a driver imports only its interface"},
	{"pkg/cancelmark/cancelmarktest", "pkg/cancelmark", "the conformance suite runs on any markers"},
	{"pkg/eventbus", "pkg/fairlead events", "the event bus is an interface"},
	{"pkg/eventbus/eventbustest", "pkg/eventbus pkg/fairlead events", "the conformance suite runs on any bus"},
	{"pkg/eventbus/queuebus", "pkg/eventbus pkg/queue pkg/fairlead events", "a bus with one subscriber works with any queue"},
	{"pkg/eventbus/eventbridge", "pkg/eventbus pkg/fairlead pkg/awsapi events", "a driver imports only its interface"},
	{"pkg/webhook", "pkg/fairlead events", "the content and signature of a webhook do not depend on the network"},
	{"pkg/webhook/webhooktest", "pkg/webhook pkg/fairlead", "the conformance suite runs on any sender"},
	{"pkg/webhook/https", "pkg/webhook pkg/fairlead", "a driver imports only its interface"},
	{"pkg/sqlitedb", "pkg/fairlead pkg/safefile", "the SQLite drivers share only how they open a file"},
	{"pkg/deadletter", "pkg/awsapi", "a replay handles messages of AWS's services, and knows none of their content"},
	{"pkg/awsrestore", "pkg/awsapi pkg/blob/s3 pkg/config pkg/control pkg/fairlead pkg/joblog/cloudwatch pkg/queue/sqs pkg/seal/kms pkg/store pkg/store/dynamo",
		"it wires the one use case that runs before the functions serve a restored table"},
	{"pkg/awsapi", "pkg/fairlead", "the AWS drivers share only the limits of requests and the meaning of errors"},

	{"pkg/control", "pkg/access pkg/audit pkg/awsaction pkg/cancelmark pkg/fairlead pkg/component pkg/job pkg/graph pkg/placement pkg/runnerspec pkg/deployment pkg/diagnosis pkg/appspec pkg/identity pkg/identity/awsiam pkg/identity/oidc pkg/seal pkg/artifact " +
		"pkg/store pkg/store/engine pkg/queue pkg/joblog pkg/blob pkg/eventbus pkg/webhook events pkg/control/internal/...",
		"use cases run with any driver, so they import none"},
	{"pkg/control/internal/kernel", "pkg/cancelmark pkg/fairlead pkg/job pkg/identity pkg/identity/awsiam pkg/identity/awsiam/bound pkg/identity/oidc pkg/seal pkg/store pkg/store/engine pkg/queue pkg/joblog pkg/blob events",
		"the commit does not depend on use cases"},
	{"pkg/control/internal/runners", "events pkg/control/internal/kernel pkg/fairlead pkg/identity pkg/identity/awsiam pkg/identity/oidc pkg/installkey pkg/job pkg/placement pkg/queue pkg/runnerspec pkg/schedule pkg/store pkg/store/engine",
		"each internal package of control imports only those before it: runners do not depend on apps and jobs"},
	{"pkg/control/internal/catalog", "events pkg/appspec pkg/fingerprint pkg/installkey pkg/jobvalues pkg/awsaction pkg/component pkg/control/internal/kernel pkg/control/internal/runners pkg/deployment pkg/diagnosis pkg/fairlead pkg/identity pkg/identity/awsiam pkg/job pkg/placement pkg/runnerspec pkg/store",
		"apps and installs depend on runners, but not on states and jobs"},
	{"pkg/control/internal/state", "events pkg/blob pkg/control/internal/catalog pkg/control/internal/kernel pkg/control/internal/runners pkg/deployment pkg/fairlead pkg/job pkg/runnerspec pkg/statefile pkg/store",
		"states and their locks depend on apps and installs, and on a deployment only by its record"},
	{"pkg/control/internal/execution", "pkg/audit pkg/cancelmark events pkg/appspec pkg/component pkg/control/internal/catalog pkg/control/internal/kernel pkg/control/internal/runners pkg/control/internal/state pkg/deployment pkg/diagnosis pkg/fairlead pkg/graph pkg/identity pkg/identity/awsiam/... pkg/installkey pkg/jobvalues pkg/job pkg/joblog pkg/placement pkg/queue pkg/runnerspec pkg/schedule pkg/store pkg/store/engine",
		"the last internal package: deployments and jobs depend on all others"},
	{"pkg/control/controltest", "events pkg/control pkg/identity pkg/fairlead", "the conformance suites run on any registry, any keeper of logs and any keeper of signing keys"},
	{"pkg/api", "pkg/access pkg/audit pkg/cancelmark pkg/changeset pkg/control pkg/fairlead pkg/identity pkg/identity/awsiam pkg/identity/oidc pkg/api/wire pkg/job pkg/deployment pkg/diagnosis pkg/appspec pkg/placement pkg/runnerspec pkg/stackversion pkg/awsaction events",
		"the API renders control's decisions with the types of the pure packages, and does not depend on the storage"},
	{"pkg/api/client", "pkg/api/wire pkg/transport", "a client is built without a server"},
	{"pkg/local", "pkg/... events", "local wires all packages with SQLite"},
	{"functions/...", "functions/... pkg/... events", "a function wires packages for AWS"},

	{"runner/...", "runner/... pkg/sessionpolicy pkg/fairlead pkg/approval pkg/bundle pkg/installkey pkg/statefile pkg/changeset pkg/policy pkg/component pkg/job events pkg/cancelmark pkg/queue/... pkg/joblog/... pkg/artifact pkg/artifact/fetch pkg/api/client pkg/api/wire pkg/pluginprotocol/... pkg/tracing pkg/transport pkg/config pkg/retry pkg/safefile pkg/runnerspec pkg/tfmodule pkg/yamlnode pkg/jobvalues pkg/identity/awsiam/...",
		"the runner is in the customer's account: it uses the API and contains no code of the control plane"},
	{"runner/ledger", "pkg/pattern", "the ledger is an interface, which the step's policy and its approvals use"},
	{"runner/ledger/ledgertest", "runner/ledger", "the conformance suite runs on any ledger"},
	{"runner/ledger/file runner/ledger/s3 runner/ledger/kubernetes", "runner/ledger pkg/safefile pkg/transport pkg/runnerspec", "a driver imports only its interface"},
	{"runner/ledger/record", "runner/ledger pkg/changeset pkg/job pkg/policy", "the CLI and the step read the same records, on any ledger"},
	{"runner/plugin/build", "events runner/plugin runner/plugin/build/imagebuild/... runner/plugin/internal/toolprocess runner/workspace pkg/api/client pkg/api/wire pkg/appspec pkg/artifact pkg/component pkg/fairlead pkg/job pkg/retry pkg/tfmodule", "a build checks a source as `validate` does, with the same code"},
	{"runner/kubernetes", "runner/kubernetes/... runner/internal/redact runner/plugin pkg/bundle pkg/changeset pkg/component pkg/fairlead pkg/pluginprotocol pkg/pluginprotocol/serve",
		"a plugin's program speaks the protocol of plugins, as one of a third party does"},
	{"runner/kubernetes/cluster", "pkg/fairlead runner/plugin", "a connection to a cluster does not depend on what is applied to it"},
	{"runner/internal/ekstoken", "", "a token of a cluster depends on nothing but the credentials and the name"},
	{"runner/kubernetes/eks", "pkg/fairlead runner/internal/ekstoken runner/plugin", "a proof of identity to a cluster does not depend on what is applied to it"},
	{"runner/kubernetes/podimage", "pkg/bundle pkg/fairlead runner/plugin", "the images of objects are found and replaced in the same way for charts and for manifests"},
	{"runner/kubernetes/manifest runner/kubernetes/helm", "pkg/bundle runner/kubernetes/cluster runner/kubernetes/podimage runner/internal/redact runner/plugin pkg/changeset pkg/fairlead pkg/retry",
		"a program of its own links it: it plans and applies objects, and knows nothing of steps and agents"},
	{"runner/images", "runner/images/... runner/plugin pkg/bundle pkg/changeset pkg/component pkg/fairlead pkg/pluginprotocol pkg/pluginprotocol/serve",
		"a plugin's program speaks the protocol of plugins, as one of a third party does"},
	{"runner/images/mirror", "runner/images/signature runner/plugin pkg/bundle pkg/changeset pkg/component pkg/fairlead pkg/yamlnode",
		"a program of its own links it: it plans and copies images, and knows nothing of steps and agents"},
	{"runner/images/provider", "runner/images/mirror pkg/bundle pkg/retry", "archives of providers are found in the same way for each copy of a bundle"},
	{"runner/images/imagetest", "test/proxy tools/program", "registries and images of tests know nothing of the plugin"},
	{"runner/images/imagetest/memorytest", "runner/images/imagetest", "a registry in memory is one of the registries of tests"},
	{"runner/images/signature", "", "the check of a signature depends on nothing but the key and the content"},
	{"runner/images/ecr", "runner/plugin pkg/fairlead", "the login to a registry does not depend on what is copied"},
	{"test/sim", "test/... runner/... pkg/... events", "the simulator runs the whole system in one process"},
	{"test/plane", "test/proxy pkg/... events", "it runs the control plane in the process of a test"},
	{"test/proxy", "pkg/api/wire", "a proxy that injects faults needs only the routes of the API"},
	{"test/canary", "pkg/seal", "it searches bytes, and knows of the control plane only how its key seals"},
	{"test/thief", "", "it attacks a runner as a program of a vendor, which knows nothing of the runner's code"},
	{"test/hostile test/hostile/reach", "test/hostile/reach", "it attacks a runner as a program of a vendor, which knows nothing of the runner's code"},
	{"test/vendortool", "", "it is a program in an image of a vendor, which knows nothing of the runner's code"},
	{"test/hosts", "", "serving host names does not depend on the services"},
	{"test/tofu", "", "finding a tool does not depend on its user"},
	{"test/alltypes", "pkg/api/client pkg/api/wire runner/images/imagetest test/proxy tools/kubeserver/kube", "the story of an install is the same on each kind of control plane and runner: it is a client of the API and of the cluster"},
	{"test/e2e test/soak/...", "test/... pkg/api/client pkg/api/wire pkg/local", "tests of whole programs are clients of the API; the soak also starts the control plane of pkg/local"},
	{"cmd/...", "cmd/... events pkg/audit pkg/bundle pkg/tfmodule pkg/approval/... pkg/changeset pkg/pluginprotocol/conformance pkg/api/client pkg/api/wire pkg/transport pkg/retry pkg/safefile pkg/appspec pkg/installkey pkg/statefile pkg/jobvalues pkg/runnerspec pkg/yamlnode pkg/artifact pkg/config pkg/commandline pkg/awsrestore pkg/deadletter pkg/fairlead pkg/local pkg/policy runner/agent/... runner/step runner/step/parts runner/ledger runner/ledger/record runner/ledger/places runner/ledger/s3",
		"the CLI is a client, and signs changes of keys with a key that the control plane lacks; `dev` and `server` start the control plane of pkg/local"},
	{"cmd/fairlead-registry", "", "the registry of images stores what the control plane passes to it, and decides nothing"},
	{"infra/...", "infra/... pkg/config pkg/store/dynamo pkg/joblog/dynamo pkg/cancelmark pkg/stackversion pkg/awsaction pkg/runnerspec pkg/fairlead pkg/changeset pkg/sessionpolicy", "the infrastructure needs the environment variables, the names of quotas, the limits of an agent's file, and the schemas of the tables, which the drivers define"},
	{"bench/...", "bench/... pkg/... events runner/agent tools/pinned tools/kubeserver/kube tools/moto", "a benchmark measures all packages, and compares with pinned clients on a pinned API server and a server that plays AWS; it runs a thousand agents in its own process, because separate processes would need 20 GiB"},
	{"tools/...", "tools/...", "a tool for development is no part of the product"},
}

// planned lists patterns of rules for packages that do not exist yet. The test fails if a
// pattern's package exists, or if no rule has the pattern. So a person must remove the
// pattern from the list.
var planned = []string{}

// ban lists import paths that some packages must not import.
type ban struct {
	packages string // patterns, separated by spaces
	never    string // forbidden import paths, separated by spaces; "module/" means this module; a final /... works as in patterns
	indirect bool   // also bans indirect imports
	except   string // patterns of packages to which the ban does not apply
	why      string
}

var bans = []ban{
	{packages: "runner/...", never: "module/pkg/store/... module/pkg/control/... module/pkg/local/...", indirect: true,
		why: "the runner is in the customer's account, so it must not contain code that writes the vendor's table"},
	{packages: "runner/...", never: "github.com/aws/aws-sdk-go-v2/service/dynamodb/...", indirect: true,
		why: "a runner never uses the vendor's table, and this package delays the start of each step's process by half a millisecond"},
	{packages: "pkg/api/client pkg/api/wire", never: "module/pkg/fairlead/... module/pkg/control/... module/pkg/store/... module/events/...", indirect: true,
		why: "other modules import the client, so it must not import code of the server"},
	{packages: "runner runner/...", except: "runner/step runner/step/parts runner/plugin/...", never: "module/runner/plugin/*",
		why: "only the step runs plugins: other packages use the component type's row in pkg/component"},
	{packages: "runner runner/...", except: "runner/agent", never: "module/pkg/tracing/...",
		why: "the agent has traces; a step has none, because each import delays the start of its process, and a trace could carry what its tool prints"},
	{packages: "cmd/... test/e2e test/soak/...", never: "module/pkg/control/... module/pkg/store/...",
		why: "the CLI uses the API, as all clients do"},
	{packages: "pkg/awsaction pkg/stackversion pkg/fairlead pkg/job pkg/component pkg/graph pkg/placement pkg/deployment pkg/diagnosis pkg/yamlnode pkg/runnerspec pkg/schedule pkg/policy pkg/sessionpolicy",
		never: "os os/exec net net/http database/sql io/ioutil github.com/aws/...",
		why:   "pure packages decide; they do no input or output, and their tests need none"},
	{packages: "...", except: "pkg/*/dynamo/... pkg/*/sqs pkg/*/cloudwatch pkg/*/s3 pkg/*/kms pkg/*/eventbridge pkg/*/ecr pkg/awsrestore pkg/deadletter pkg/identity/... runner/agent/direct/service runner/internal/awsrole runner/internal/modeparameter runner/internal/secretsource/awsstore runner/ledger/s3 runner/plugin/terraform/statebucket runner/plugin/terraform/bucket runner/images/ecr runner/internal/ekstoken runner/executor/... runner/plugin/build/imagebuild/codebuildtest tools/...",
		never: "github.com/aws/aws-sdk-go-v2/service/...",
		why:   "only a driver or an executor, which gets an aws.Config, uses the client of a cloud service"},
	{packages: "...", except: "runner/kubernetes/... runner/agent/clusters runner/executor/kubernetes/... runner/executor/kubelettest tools/...",
		never: "k8s.io/... sigs.k8s.io/... github.com/fluxcd/... helm.sh/...",
		why:   "these packages are large: a step that links them starts later and needs more memory, so the plugins for Kubernetes are a program of their own"},
	{packages: "runner/step runner/fairlead-step", never: "github.com/aws/... k8s.io/... sigs.k8s.io/... helm.sh/... github.com/moby/... module/runner/step/parts/... module/runner/plugin/build/...", indirect: true,
		why: "fairlead-step starts for each job that needs no cloud, and these packages need twice as much CPU time at each start as all others"},
	{packages: "...", except: "runner cmd/fairlead test/sim", never: "module/runner/step/parts/...",
		why: "the packages of a step do not know where its large parts come from: a program decides whether it has them"},
	{packages: "runner/step runner/plugin/...", never: "k8s.io/... sigs.k8s.io/... github.com/fluxcd/... helm.sh/... module/runner/kubernetes/...", indirect: true,
		why: "a step starts the program of the plugins for Kubernetes, and links nothing of it"},
	{packages: "...", except: "runner/images/... test/alltypes tools/release", never: "github.com/regclient/... github.com/sigstore/... module/runner/images/...",
		why: "these packages are large, so the plugin of images is a program of its own"},
	{packages: "cmd/fairlead/internal/...", never: "github.com/aws/... modernc.org/... k8s.io/... github.com/danielgtaylor/... module/pkg/local/...", indirect: true,
		why: "the light build of the CLI links nothing else, and each command pays for the start of what it links"},
	{packages: "cmd/fairlead/...", never: "github.com/olareg/...", indirect: true,
		why: "this library computes a password hash when a program starts, so the registry of images is a program of its own"},
	{packages: "runner runner/step runner/plugin/... runner/agent/...", never: "github.com/regclient/... github.com/sigstore/... module/runner/images/...", indirect: true,
		why: "a step starts the program of the plugin of images, and links nothing of it"},
	{packages: "...", except: "runner/kubernetes/...", never: "module/runner/kubernetes/...",
		why: "only the program of the plugins for Kubernetes links them"},
	{packages: "...", except: "pkg/sqlitedb pkg/*/sqlite", never: "database/sql modernc.org/sqlite/...",
		why: "only drivers use SQL"},
	{packages: "...", except: "cmd/... runner", never: "github.com/spf13/cobra/...",
		why: "only programs with a command line parse one"},
	{packages: "...", except: "pkg/api", never: "github.com/danielgtaylor/huma/...",
		why: "domain types must not depend on the API's framework"},
	{packages: "pkg/... runner/... cmd/... functions/...", except: "pkg/*test pkg/*/*test pkg/*/*/*test functions/internal/*test runner/*/*test runner/*/*/*test runner/*/*/*/*test cmd/*/internal/*test",
		never: "testing testing/... net/http/httptest pgregory.net/rapid/... module/pkg/*/*test module/pkg/*/*/*test module/functions/internal/*test module/runner/*/*test module/runner/*/*/*test module/test/...",
		why:   "a binary contains no test code"},
}

// pkg is a package in the output of go list.
type pkg struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Ignored    []string `json:"IgnoredGoFiles"` // files for other platforms or build tags
	CgoFiles   []string
	Imports    []string
	Deps       []string
	Standard   bool
	Error      *struct{ Err string }
}

// listPackages returns the packages of this module by their path below the module. It
// omits packages that contain only tests, such as the package in the root folder.
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

// match reports whether the pattern matches the path.
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

// names reports whether the rule has a pattern without a final /... that matches the
// package.
func (r rule) names(name string) bool {
	return slices.ContainsFunc(strings.Fields(r.packages), func(p string) bool { return !strings.HasSuffix(p, "...") && match(p, name) })
}

// rulesFor returns the rules that name the package. If no rule names it, rulesFor returns
// the rules that match the package. If no rule matches it, rulesFor returns the rules of
// the owner of the package's internal folder.
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

// hasRule reports whether a rule names the package itself. If a rule names an internal
// package, even the packages of its owner need a rule that permits them to import it.
func hasRule(name string) bool {
	return slices.ContainsFunc(rules, func(r rule) bool { return r.names(name) })
}

// owner returns the folder above /internal/ for an internal package, and the package
// itself for any other package.
func owner(name string) string {
	before, _, _ := strings.Cut(name, "/internal/")
	return before
}

// everywhere is the package that each package may import: a regular expression gives it no knowledge of another package.
const everywhere = "pkg/pattern"

// TestProgramsCompileNoPatternAtTheirStart: each job and each command of the CLI starts a process. When these patterns were
// compiled at the start of each, they took half of the start of a step.
func TestProgramsCompileNoPatternAtTheirStart(t *testing.T) {
	for name, p := range listPackages(t) {
		if !matchAny("cmd/... events functions/... pkg/... runner/...", name) {
			continue
		}
		for _, file := range p.GoFiles {
			files := token.NewFileSet()
			f, err := parser.ParseFile(files, filepath.Join(p.Dir, file), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range f.Decls {
				g, ok := d.(*ast.GenDecl)
				if !ok || g.Tok != token.VAR {
					continue
				}
				ast.Inspect(g, func(n ast.Node) bool {
					s, ok := n.(*ast.SelectorExpr)
					if !ok {
						return true
					}
					if x, ok := s.X.(*ast.Ident); ok && x.Name == "regexp" && strings.HasPrefix(s.Sel.Name, "MustCompile") {
						t.Errorf("%s: a variable of the package is compiled at the start of each process; use pattern.New", files.Position(s.Pos()))
					}
					return true
				})
			}
		}
	}
}

func TestImportTable(t *testing.T) {
	for name, p := range listPackages(t) {
		found := rulesFor(name)
		if len(found) != 1 {
			t.Errorf("%s matches %d rules of the import table; it needs exactly one", name, len(found))
			continue
		}
		for _, imported := range p.Imports {
			rel, ours := strings.CutPrefix(imported, module)
			// Test support may use the programs and servers of tools.
			if (strings.HasSuffix(name, "test") || matchAny("test/...", name)) && matchAny("tools/...", rel) {
				continue
			}
			if rel == everywhere {
				continue
			}
			if ours && !matchAny(found[0].may, rel) && (owner(rel) != owner(name) || strings.Contains(rel, "/internal/") && hasRule(rel)) {
				t.Errorf("%s imports %s, but may import only [%s]: %s", name, rel, found[0].may, found[0].why)
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
					t.Errorf("%s must not import %s: %s", name, imported, b.why)
				}
			}
		}
	}
}

// wiring lists the types of control that are built with a store. No use case has such a
// type as an argument or a result.
var wiring = map[string]bool{"Control": true, "Deps": true, "Dispatcher": true, "Deliverer": true, "Record": true}

// TestUseCasesHideTypesOfTheStore checks that callers of control cannot depend on the
// storage. No exported type of control, except the types in wiring, is an alias of a type
// of the store or has an exported field of such a type. No use case has such a type as an
// argument or a result.
func TestUseCasesHideTypesOfTheStore(t *testing.T) {
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
	internals := []string{"kernel", "runners", "catalog", "state", "execution"}
	for _, internal := range append(internals, "") {
		declared[internal] = map[string]ast.Expr{}
		parse(strings.TrimSuffix("pkg/control/internal/"+internal, "/internal/"), func(d ast.Decl) {
			if g, ok := d.(*ast.GenDecl); ok {
				for _, s := range g.Specs {
					if s, ok := s.(*ast.TypeSpec); ok {
						declared[internal][s.Name.Name] = s.Type
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
		for { // resolve aliases
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
			t.Errorf("control.%s contains the type %s", name, found)
		}
	}
	// The methods of the kernel are not use cases: only tests and the functions call them.
	callable := map[string]bool{"Control": true, "Fleet": true, "Catalog": true, "States": true, "Execution": true}
	for _, internal := range append(internals[1:], "") {
		parse(strings.TrimSuffix("pkg/control/internal/"+internal, "/internal/"), func(d ast.Decl) {
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
					t.Errorf("the use case %s has the type %s as an argument or a result", f.Name, found)
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
				t.Errorf("a rule names %s, which does not exist", pattern)
			}
		}
		for _, pattern := range strings.Fields(r.may) {
			known[pattern] = true
			if !covers(pattern) && !slices.Contains(planned, pattern) {
				t.Errorf("the rule of %s allows %s, which does not exist", r.packages, pattern)
			}
		}
	}
	for _, pattern := range planned {
		switch {
		case !known[pattern]:
			t.Errorf("planned lists %s, which no rule has", pattern)
		case covers(pattern):
			t.Errorf("planned lists %s, which exists now: remove it", pattern)
		}
	}
}

// Each package has exactly one package comment, because a reader starts with it.
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

// alsoNames lists the files in which the name of a component type means something else.
var alsoNames = map[string]string{
	"cmd/fairlead/internal/cli/dev.go":              "a program on the PATH",
	"cmd/fairlead/internal/cli/plugin.go":           "a command",
	"pkg/pluginprotocol/conformance/conformance.go": "the type of a request for tests: the package must not import the table",
	"pkg/artifact/fetch/cache.go":                   "a folder of the cache",
	"runner/internal/agentstatus/agentstatus.go":    "a label of a metric",
	"runner/kubernetes/helm/engine.go":              "the field manager of the program helm",
	"runner/kubernetes/helm/history.go":             "a label of the records of releases",
	"runner/step/step.go":                           "a field of a log",
	"pkg/appspec/syntax.go":                         "a block of a module's language",
	"pkg/tfmodule/tfmodule.go":                      "a block of a module's language",
	"pkg/tfmodule/programs.go":                      "the name of a block",
	"cmd/fairlead/internal/view/stack.go":           "a field of a stack",
	"pkg/api/forms.go":                              "a field of a form",
	"pkg/control/internal/runners/stackreport.go":   "a part of a stack",
	"pkg/runnerspec/check.go":                       "a check of a reference",
	"pkg/runnerspec/checkkinds.go":                  "a field of a runner's file",
	"cmd/fairlead/internal/cli/runnerchannel.go":    "a flag",
	"runner/images/mirror/source.go":                "a field of image.yaml",
	"runner/agent/direct/direct.go":                 "a field of a log",
	"cmd/fairlead/internal/importer/humanitec.go":   "a field of another product's file",
	"cmd/fairlead/internal/importer/podtemplate.go": "a field of a pod",
	"cmd/fairlead/internal/importer/tharsis.go":     "a field of another product's file",
	"runner/agent/wanted.go":                        "a field of a log",
	"pkg/bundle/lock.go":                            "a folder of an app",
	"pkg/bundle/objects.go":                         "a field of a pod",
	"runner/kubernetes/podimage/text.go":            "a field of a pod",
	"pkg/policy/images.go":                          "a field of a pod",
	"pkg/policy/read.go":                            "a check",
	"pkg/bundle/whole.go":                           "a kind of object in a bundle",
	"runner/images/mirror/set.go":                   "a field of a change set",
	"runner/images/signature/signature.go":          "a form of a signature",
}

// TestComponentTypesAreNamedInTheirTable checks that only the table of pkg/component names
// component types. Everything that is specific to a type is a column of the table.
// Otherwise a person who adds a type would have to search for all comparisons.
func TestComponentTypesAreNamedInTheirTable(t *testing.T) {
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
					t.Errorf("%s:%d names the component type %q: use a column of the table in pkg/component instead", at, fset.Position(lit.Pos()).Line, text)
				}
				return true
			})
		}
	}
	for at := range alsoNames {
		if !found[at] {
			t.Errorf("alsoNames lists %s, which names no component type any more: remove it", at)
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

//go:build linux

package main_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/local"
	"github.com/fairlead/fairlead/test/canary"
	"github.com/fairlead/fairlead/test/e2e"
	"github.com/fairlead/fairlead/test/proxy"
)

// The sensitive places. The canary of each is canary.Text of its name, except that of the generated input.
const (
	givenInput      = "input that a person gives"
	generatedInput  = "input that is generated"
	ofInstall       = "variable of the install"
	smallOutput     = "output of a module, small"
	largeOutput     = "output of a module, large"
	scriptOutput    = "output of a script"
	componentEnv    = "environment of a component"
	actionParam     = "param of an action"
	customersSecret = "secret of the customer"
	inState         = "state"
	inPlan          = "saved plan"
	ofRunner        = "variable of the runner"
	ofGroup         = "variable of a group"
	ofApp           = "variable of the app"
	installName     = "name of the install"
	planted         = "argument of a process"
)

// Where the control plane has a canary, and which of its own names the place. A place has "(opened)" if only a key of the control plane
// opens the canary there.
const (
	nowhere    = ""
	inTheTable = "answers, requests, table (opened)"
	inTheBlobs = "answers, blobs (opened), requests"
	inBoth     = "answers, blobs (opened), requests, table (opened)"
	vendorsOwn = inTheTable // sealed by the control plane: the vendor's own, for several installs and so for several keys
)

// placesOfCanaries has a row for each sensitive place: where the control plane has the canary if the install has a key, and if it has
// none. The state and the saved plan hold the inputs too.
var placesOfCanaries = map[string]struct{ keyed, keyless string }{
	givenInput:      {nowhere, inBoth},
	generatedInput:  {nowhere, inBoth},
	ofInstall:       {nowhere, inTheTable},
	smallOutput:     {nowhere, inTheBlobs}, // beside the large one
	largeOutput:     {nowhere, inTheBlobs},
	scriptOutput:    {nowhere, inBoth},
	componentEnv:    {nowhere, inBoth},
	customersSecret: {nowhere, inTheBlobs},
	inState:         {nowhere, inTheBlobs},
	inPlan:          {nowhere, "blobs (opened), requests"},
	actionParam:     {nowhere, inTheTable},
	ofRunner:        {vendorsOwn, vendorsOwn},
	ofGroup:         {vendorsOwn, vendorsOwn},
	ofApp:           {vendorsOwn, vendorsOwn},
	// No secrets: they show that the search reaches the other places.
	installName: {"answers, requests, table, what the API shows", "answers, requests, table, what the API shows"},
	planted:     {"arguments", "arguments"},
}

const canaryApp = `fairlead: v1
name: nest
inputs:
  given: {type: string, sensitive: true, required: true}
  generated: {generate: 40, sensitive: true}
  folder: {type: string, required: true}
components:
  db:
    type: terraform
    source: ./db
    vars: {given: "${inputs.given}", generated: "${inputs.generated}", folder: "${inputs.folder}"}
    secrets: [var.customers]
  web:
    type: terraform
    source: ./web
    vars: {small: "${components.db.outputs.small}", large: "${components.db.outputs.large}", seeded: "${components.seed.outputs.token}"}
  seed:
    type: script
    source: ./seed
    vars: {folder: "${inputs.folder}", given: "${inputs.given}"}
    env: {SENT: "${components.db.outputs.sent}"}
actions:
  rotate:
    type: script
    source: ./rotate
    params: {key: {type: string, sensitive: true}}
    vars: {key: "${params.key}", small: "${components.db.outputs.small}"}
`

// canaryFiles are the files of the app. The module reads the canaries of its outputs and of its state from files on the runner's
// machine, as a resource makes a password: neither the vendor nor the control plane gave them.
var canaryFiles = map[string]string{
	"app.yaml": canaryApp,
	"db/main.tf": `
variable "given" {
  type      = string
  sensitive = true
}
variable "generated" {
  type      = string
  sensitive = true
}
variable "customers" {
  type      = string
  sensitive = true
}
variable "folder" { type = string }
locals { made = { for name in ["small", "large", "sent", "state"] : name => sensitive(file("${var.folder}/${name}")) } }
resource "terraform_data" "it" {
  input            = [var.customers, var.given, var.generated]
  triggers_replace = local.made.state
  provisioner "local-exec" {
    command = "if [ -p ${var.folder}/gate-db ]; then read go <${var.folder}/gate-db; fi; echo \"the module has $OF_INSTALL and $OF_RUNNER\""
  }
}
output "small" {
  value     = local.made.small
  sensitive = true
}
output "large" {
  value     = join("-", [for i in range(1000) : format("%s/%0300d", local.made.large, i)])
  sensitive = true
}
output "sent" {
  value     = local.made.sent
  sensitive = true
}
output "generated" {
  value     = var.generated
  sensitive = true
}
`,
	"web/main.tf": `
variable "small" {
  type      = string
  sensitive = true
}
variable "large" {
  type      = string
  sensitive = true
}
variable "seeded" {
  type      = string
  sensitive = true
}
resource "terraform_data" "it" { input = [var.small, length(var.large), var.seeded] }
`,
	"seed/run": `#!/bin/sh
set -eu
if [ "$1" != apply ]; then exit 0; fi
folder=$FAIRLEAD_VAR_folder
if [ -p "$folder/gate-seed" ]; then read -r go <"$folder/gate-seed"; fi
echo "the script has $SENT and $FAIRLEAD_VAR_given and $OF_APP"
printf '{"token": {"value": "%s", "sensitive": true}}\n' "$(cat "$folder/script")" >"$FAIRLEAD_OUTPUTS"
`,
	"rotate/run": "#!/bin/sh\necho \"the action has $FAIRLEAD_VAR_key and $FAIRLEAD_VAR_small\"\n",
}

// nest is a whole control plane in this process, with an agent whose steps are processes, and everything that leaves and reaches it.
type nest struct {
	t        *testing.T
	dir      string   // of the test
	folder   string   // of the files of the app, on the runner's machine
	data     string   // of the control plane
	install  string   // its name
	waiting  string   // the deployment whose plan waits for a person
	runner   []string // the agent's program and its arguments
	agentEnv []string
	keyed    bool // the agent has a seed of install keys
	agent    *e2e.Process
	cli      string
	env      []string

	mu    sync.Mutex
	known map[string][]byte // by place and a number
}

// note keeps what is known at a place.
func (n *nest) note(place string, content []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known[fmt.Sprintf("%s %d", place, len(n.known))] = bytes.Clone(content)
}

// Write keeps the log of the control plane.
func (n *nest) Write(line []byte) (int, error) {
	n.note("server's log", line)
	return len(line), nil
}

// RoundTrip keeps the deliveries to the endpoint of a webhook.
func (n *nest) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	n.note("webhooks", fmt.Appendf(body, " %v %s", r.Header, r.URL))
	return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody, Request: r}, nil
}

// record keeps the requests and the answers of the control plane.
func (n *nest) record(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, answer := &recordedBody{ReadCloser: r.Body}, &recordedAnswer{ResponseWriter: w}
		head := fmt.Sprintf("%s %s %v ", r.Method, r.URL, r.Header)
		r.Body = body
		defer func() {
			n.note("requests", append([]byte(head), body.read.Bytes()...))
			n.note("answers", fmt.Appendf(answer.sent.Bytes(), " %v", w.Header()))
		}()
		next.ServeHTTP(answer, r)
	})
}

type recordedBody struct {
	io.ReadCloser
	read bytes.Buffer
}

func (b *recordedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read.Write(p[:n])
	return n, err
}

type recordedAnswer struct {
	http.ResponseWriter
	sent bytes.Buffer
}

func (a *recordedAnswer) Write(p []byte) (int, error) {
	a.sent.Write(p)
	return a.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (a *recordedAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// fairlead runs the CLI as the vendor does, and returns its standard output.
func (n *nest) fairlead(args ...string) string {
	n.t.Helper()
	cmd := exec.CommandContext(n.t.Context(), n.cli, args...)
	cmd.Env, cmd.Dir = n.env, n.dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		n.t.Fatalf("fairlead %s: %v\n%s%s", strings.Join(args, " "), err, out.Bytes(), errs.Bytes())
	}
	return out.String()
}

func (n *nest) write(path, content string, mode fs.FileMode) {
	n.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), mode)); err != nil {
		n.t.Fatal(err)
	}
}

// arguments keeps the arguments of all processes of the runner, and returns them.
func (n *nest) arguments() string {
	var lines []string
	for _, p := range e2e.Processes(n.dir) {
		lines = append(lines, p.Line)
	}
	all := strings.Join(lines, "\n")
	n.note("arguments", []byte(all))
	return all
}

// through waits until a component is at its gate, keeps the arguments of all processes of the runner, and opens the gate.
func (n *nest) through(deployment, component, tool string) {
	n.t.Helper()
	path := filepath.Join(n.folder, "gate-"+component)
	var gate *os.File
	e2e.Until(n.t, component+" is at its gate", func() bool {
		if shown := n.fairlead("deployment", "show", deployment); strings.Contains(shown, "failed") {
			n.t.Fatal(shown)
		}
		var err error
		gate, err = os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		return err == nil // fails while the FIFO has no reader
	})
	all := n.arguments()
	if !strings.Contains(all, tool) || !strings.Contains(all, " step ") && !strings.Contains(all, "fairlead-step") || !strings.Contains(all, " agent ") {
		n.t.Errorf("the processes at the gate of %s are\n%s", component, all)
	}
	if err := os.Remove(path); err != nil {
		n.t.Fatal(err)
	}
	if _, err := gate.WriteString("go\n"); err != nil {
		n.t.Fatal(err)
	}
	gate.Close()
}

func newNest(t *testing.T, programs e2e.Programs, keyed bool) *nest {
	dir := t.TempDir()
	n := &nest{t: t, dir: dir, folder: filepath.Join(dir, "folder"), data: filepath.Join(dir, "server"), keyed: keyed, cli: programs.Command, known: map[string][]byte{}}
	server, err := local.Start(t.Context(), local.Options{Data: n.data, Listen: "127.0.0.1:0", Version: "test", Storage: "http", Endpoints: n, CheckpointEvery: 200 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(n, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(n.record(proxy.To(t, server.URL())))
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
		if err := server.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("close the control plane: %v", err)
		}
	})
	n.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "FAIRLEAD_CONFIG_DIR=" + filepath.Join(dir, "config"), "FAIRLEAD_DATA=" + filepath.Join(dir, "runner"),
		"FAIRLEAD_URL=" + front.URL, "FAIRLEAD_TOKEN_FILE=" + server.TokenFile(), "GORACE=atexit_sleep_ms=0"}

	for name, place := range map[string]string{"small": smallOutput, "large": largeOutput, "sent": componentEnv, "state": inState, "script": scriptOutput, "customers": customersSecret} {
		n.write(filepath.Join(n.folder, name), canary.Text(place), 0o644)
	}
	for name, text := range canaryFiles {
		n.write(filepath.Join(dir, "app", name), text, 0o755)
	}
	for _, component := range []string{"db", "seed"} {
		if err := syscall.Mkfifo(filepath.Join(n.folder, "gate-"+component), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n.install = canary.Text(installName)
	n.fairlead("runner", "enrol", "local", "--out", filepath.Join(dir, "enrolment"))
	n.runner, n.agentEnv = []string{programs.Runner, "agent", "--shared-process", "true", "--url", front.URL, "--data", filepath.Join(dir, "runner"), "--enrolment-token-file", filepath.Join(dir, "enrolment"), "--log-level", "debug"}, append(slices.Clone(n.env[:2]), "FAIRLEAD_TOFU="+programs.Tool, "GORACE=atexit_sleep_ms=0", "FAIRLEAD_STATUS_ADDRESS=127.0.0.1:0", fmt.Sprintf("FAIRLEAD_MAKE_INSTALL_KEY=%t", keyed),
		fmt.Sprintf(`FAIRLEAD_AGENT_CONFIG={"runner_configuration": {"type": "local"}, "secrets": {"db/var.customers": "file:%s"}}`, filepath.Join(n.folder, "customers")))
	n.startAgent()
	return n
}

// startAgent starts the agent and waits until it is ready.
func (n *nest) startAgent() {
	t := n.t
	t.Helper()
	cmd := exec.Command(n.runner[0], n.runner[1:]...)
	cmd.Env = n.agentEnv
	var err error
	if n.agent, err = e2e.Launch("fairlead-runner agent", cmd, nil); err != nil {
		t.Fatal(err)
	}
	agent := n.agent
	t.Cleanup(func() {
		agent.Kill()
		if t.Failed() {
			t.Logf("the agent's output:\n%s", agent.Output())
		}
	})
	e2e.Until(t, "the agent is ready", func() bool { return strings.Contains(agent.Output(), "ready") })
}

// moves gives the runner a seed, and deploys the changed state. It returns the canaries of people that the control plane can open then.
// The file of the database may still have a sealed copy in a free page.
func (n *nest) moves(search *canary.Search) []string {
	n.t.Helper()
	n.agent.Kill()
	cmd := exec.CommandContext(n.t.Context(), n.runner[0], "install-key", "rotate", "--data", filepath.Join(n.dir, "runner"))
	cmd.Env = n.agentEnv
	if out, err := cmd.CombinedOutput(); err != nil {
		n.t.Fatalf("make the seed: %v: %s", err, out)
	}
	n.startAgent()
	n.fairlead("deployment", "cancel", n.waiting)
	n.fairlead("install", "deploy", n.install, "--auto-approve")
	e2e.Until(n.t, "the audit has an entry for each change, and keeps none", func() bool {
		left := 0
		for _, table := range []string{"noted", "changes"} {
			if err := values(filepath.Join(n.data, "table.db"), table, func([]byte) { left++ }); err != nil {
				n.t.Fatal(err)
			}
		}
		return left == 0
	})
	found := map[string]canary.Find{}
	if err := rows(filepath.Join(n.data, "table.db"), func(value []byte) { maps.Copy(found, search.In(value)) }); err != nil {
		n.t.Fatal(err)
	}
	return canary.Names(found)
}

// deploys deploys the app, runs its action, and leaves a plan that waits for a person. It returns the canaries.
func (n *nest) deploys() map[string]string {
	n.t.Helper()
	texts := map[string]string{}
	for place := range placesOfCanaries {
		texts[place] = canary.Text(place)
	}
	n.fairlead("webhook", "create", "ops", "--endpoint", "https://hooks.example.com/all")
	n.fairlead("app", "apply", filepath.Join(n.dir, "app"))
	n.write(filepath.Join(n.dir, "inputs.yaml"), fmt.Sprintf("{given: %q, folder: %q}", texts[givenInput], n.folder), 0o600)
	n.fairlead("install", "create", n.install, "--app", "nest", "--input-file", "inputs.yaml")
	for scope, place := range map[string]string{"--install=" + n.install: ofInstall, "--runner=local": ofRunner, "--group=/": ofGroup, "--app=nest": ofApp} {
		name := strings.ToUpper(strings.NewReplacer("--", "OF_", "="+n.install, "", "=local", "", "=/", "", "=nest", "").Replace(scope))
		n.env = append(n.env, "SOURCE="+texts[place])
		n.fairlead("variable", "set", scope, "--sensitive-env", name+"=SOURCE")
		n.env = n.env[:len(n.env)-1]
	}
	first := strings.TrimSpace(n.fairlead("install", "deploy", n.install, "--auto-approve", "--detach"))
	n.through(first, "db", "tofu")
	n.through(first, "seed", "run apply")
	n.fairlead("deployment", "show", first, "--follow")
	n.write(filepath.Join(n.dir, "params.yaml"), fmt.Sprintf("key: %q", texts[actionParam]), 0o600)
	n.fairlead("action", "run", n.install, "rotate", "--param-file", "params.yaml")

	n.write(filepath.Join(n.folder, "state"), texts[inPlan], 0o644)
	second := strings.TrimSpace(n.fairlead("install", "deploy", n.install, "--refresh", "--detach"))
	n.waiting = second
	e2e.Until(n.t, "the second plan waits for a person", func() bool {
		return strings.Contains(n.fairlead("deployment", "show", second, "--json"), `"awaiting-approval"`)
	})

	show := []string{"install", "outputs", n.install, "--json", "--show-sensitive"}
	if seed := filepath.Join(n.dir, "runner", "install-key.seed"); n.keyed {
		show = append(show, "--key-file", seed)
	}
	e2e.Until(n.t, "the endpoint has got an event", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return slices.ContainsFunc(slices.Collect(maps.Keys(n.known)), func(name string) bool { return strings.HasPrefix(name, "webhooks ") })
	})
	var outputs map[string]map[string]any
	if err := json.Unmarshal([]byte(n.fairlead(show...)), &outputs); err != nil {
		n.t.Fatal(err)
	}
	generated, _ := outputs["db"]["generated"].(string)
	if len(generated) != 40 || outputs["db"]["small"] != texts[smallOutput] || outputs["seed"]["token"] != texts[scriptOutput] {
		n.t.Fatalf("the outputs are %v", outputs)
	}
	texts[generatedInput] = generated
	for _, args := range [][]string{{"install", "show", n.install, "--json"}, {"variable", "list", "--install", n.install, "--json"}, {"deployment", "show", first, "--json"}, {"audit", "list", "--json"}} {
		n.note("what the API shows", []byte(n.fairlead(args...)))
	}
	return texts
}

// look keeps what the control plane and the agent have at the end.
func (n *nest) look(metrics string) {
	n.t.Helper()
	n.note("agent's log", []byte(n.agent.Output()))
	other := exec.Command("sh", "-c", "read -r end", "sh", canary.Text(planted), n.dir)
	end, err := other.StdinPipe()
	if err == nil {
		err = other.Start()
	}
	if err != nil {
		n.t.Fatal(err)
	}
	n.arguments()
	end.Close()
	_ = other.Wait() // read fails at the end of its input
	res, err := http.Get("http://" + metrics + "/metrics")
	if err != nil {
		n.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || !bytes.Contains(body, []byte("fairlead_runner_jobs_ended_total")) {
		n.t.Fatalf("the metrics are %s, %v", body, err)
	}
	n.note("metrics", body)
	stored(n.t, n.data, n.note)
}

// stored notes each file of a control plane's data folder, by its place: the first element of its path, without the ending of a
// database. Of a database it also notes each value: in the file, a large one is in several pieces.
func stored(t *testing.T, data string, note func(place string, content []byte)) {
	t.Helper()
	err := filepath.WalkDir(data, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the control plane removes files meanwhile
		}
		if err != nil || entry.IsDir() {
			return err
		}
		rel, err := filepath.Rel(data, path)
		if err != nil {
			return err
		}
		top, _, _ := strings.Cut(rel, string(filepath.Separator))
		place, _, _ := strings.Cut(top, ".db") // also its write-ahead log
		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		note(place, content)
		if err == nil && strings.HasSuffix(path, ".db") {
			err = rows(path, func(value []byte) { note(place, value) })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// rows notes each value of a database.
func rows(path string, note func([]byte)) error {
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	if err != nil {
		return err
	}
	defer db.Close()
	tables, err := column(db, "SELECT name FROM sqlite_master WHERE type = 'table'")
	for _, table := range tables {
		err = errors.Join(err, values(path, string(table), note))
	}
	return err
}

// values notes each value of a table of a database.
func values(path, table string, note func([]byte)) error {
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	if err != nil {
		return err
	}
	defer db.Close()
	columns, err := column(db, "SELECT name FROM pragma_table_info('"+table+"')")
	for _, name := range columns {
		all, e := column(db, fmt.Sprintf("SELECT %q FROM %q", name, table))
		err = errors.Join(err, e)
		for _, value := range all {
			note(value)
		}
	}
	return err
}

func column(db *sql.DB, query string) (values [][]byte, err error) {
	rows, err := db.Query(query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var value []byte
		if err := rows.Scan(&value); err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	return values, rows.Err()
}

// keysOfTheControlPlane returns the openers of each key in its folder of keys. The keys that sign specs and make tokens open nothing,
// but a value that was sealed with one of them by mistake would be found.
func keysOfTheControlPlane(t *testing.T, data string) (openers []canary.Opener) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(data, "keys", "seal.key"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Keys []struct{ Secret string } }
	if err := json.Unmarshal(text, &file); err != nil || len(file.Keys) == 0 {
		t.Fatalf("the file of keys has %d keys: %v", len(file.Keys), err)
	}
	for _, key := range file.Keys {
		secret, err := base64.StdEncoding.DecodeString(key.Secret)
		if err != nil {
			t.Fatal(err)
		}
		openers = append(openers, canary.Seal(t, secret, 64<<10<<10))
	}
	for _, name := range []string{"signing.key", "tokens.key"} {
		text, err := os.ReadFile(filepath.Join(data, "keys", name))
		if err != nil {
			t.Fatal(err)
		}
		secret, err := hex.DecodeString(strings.TrimSpace(string(text)))
		if err != nil || len(secret) < 32 {
			t.Fatalf("%s has %d bytes: %v", name, len(secret), err)
		}
		openers = append(openers, canary.Seal(t, secret[:32], 64<<10<<10))
	}
	return openers
}

// A customer's secrets go through a whole deployment: inputs, variables, outputs, params, environment, state and saved plan. The test
// searches everything that the control plane received, stored, sent and logged, also as each of its keys opens it. With a key of the
// install it finds none. Without one it finds each, so the search works.
func TestControlPlaneOpensNoSecretOfACustomer(t *testing.T) {
	programs := e2e.Build(t)
	for name, keyed := range map[string]bool{"with a key": true, "without a key": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNest(t, programs, keyed)
			texts := n.deploys()
			n.look(statusAddress(t, n.agent.Output()))
			search := canary.New(texts, keysOfTheControlPlane(t, n.data)...)
			places := map[string]map[string]bool{} // by canary
			seen := map[string]bool{}
			n.mu.Lock()
			known := maps.Clone(n.known) // the agent polls meanwhile
			n.mu.Unlock()
			for name, content := range known {
				at := name[:strings.LastIndex(name, " ")]
				if seen[at+string(content)] {
					continue
				}
				seen[at+string(content)] = true
				for what, find := range search.In(content) {
					at := at
					if !find.Clear {
						at += " (opened)"
					}
					if places[what] == nil {
						places[what] = map[string]bool{}
					}
					places[what][at] = true
				}
			}
			for place, part := range map[string]string{"webhooks": "fairlead.job.succeeded", "server's log": "level=", "agent's log": "step launched", "metrics": "fairlead_runner", "queue": "SQLite", "log": "the action has (sensitive)",
				"blobs": "", "artifacts": "", "table": `"schema"`, "keys": ""} {
				if !slices.ContainsFunc(slices.Collect(maps.Keys(known)), func(name string) bool {
					return strings.HasPrefix(name, place+" ") && bytes.Contains(known[name], []byte(part))
				}) {
					t.Errorf("nothing of the place %q with %q was searched", place, part)
				}
			}
			for place, row := range placesOfCanaries {
				want := row.keyless
				if keyed {
					want = row.keyed
				}
				if got := strings.Join(slices.Sorted(maps.Keys(places[place])), ", "); got != want {
					t.Errorf("the %s is in %q, want %q", place, got, want)
				}
			}
			if !keyed {
				want := fmt.Sprint([]string{installName, actionParam + " (opened)", ofGroup + " (opened)", ofApp + " (opened)", ofRunner + " (opened)"})
				if got := fmt.Sprint(n.moves(search)); got != want {
					t.Errorf("after the runner got a seed and deployed, the table has %s, want %s", got, want)
				}
			}
		})
	}
}

// statusAddress returns the address of the agent's metrics, which its log names.
func statusAddress(t *testing.T, log string) string {
	t.Helper()
	for line := range strings.Lines(log) {
		if _, rest, ok := strings.Cut(line, "address="); ok && strings.Contains(line, "status") {
			return strings.Trim(strings.Fields(rest)[0], `"`)
		}
	}
	t.Fatalf("the agent's log has no address of its status:\n%s", log)
	return ""
}

// Package iamsimulator decides in tests what IAM allows, with an npm package that
// evaluates identity, resource and session policies and boundaries.
//
// If it cannot be installed, tests skip with a conspicuous message. With
// FAIRLEAD_REQUIRE_IAM_SIMULATOR=1 they fail instead.
package iamsimulator

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/tools/testserver"
)

// RequireEnv is the variable that, if "1", makes a test fail that would skip.
const RequireEnv = "FAIRLEAD_REQUIRE_IAM_SIMULATOR"

// version is the version of the simulator in package.json.
const version = "0.1.173"

var (
	//go:embed package.json
	manifest string
	//go:embed package-lock.json
	lock string
	//go:embed simulate.mjs
	script string
)

// Question asks whether a principal may use an action on a resource.
type Question struct {
	Principal string // ARN; of a session: the ARN of its role, because the ARN of a session lacks the role's path
	Action    string
	Resource  string           // ARN, or "*"
	Account   string           // of the resource
	Context   map[string]any   // condition keys; a key with the value nil is absent from the request
	Identity  []map[string]any // policies of the principal
	Session   map[string]any   // session policy; nil: none
	Boundary  map[string]any   // nil: none
	ResourceP map[string]any   // policy of the resource; nil: none
}

// Simulator is a running simulator. Safe for concurrent use: it answers one request after
// another.
type Simulator struct {
	mu     sync.Mutex
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr bytes.Buffer
}

// Start starts a simulator. Stop it, or end the process: it exits at the end of its input.
// Without a simulator Start skips the test, or fails it if RequireEnv is "1".
func Start(t testing.TB) *Simulator {
	t.Helper()
	folder, err := fetch(context.Background())
	var s *Simulator
	if err == nil {
		s, err = start(folder)
	}
	if err != nil {
		testserver.Missing(t, "NOT CHECKED with the IAM simulator", RequireEnv, "Install Node with npm", err)
	}
	return s
}

// fetch installs the packages and returns their folder.
func fetch(ctx context.Context) (string, error) {
	return testserver.Program{Name: "the IAM simulator", Folder: "iam-simulator-" + version, Install: testserver.Npm(manifest, lock)}.Fetch(ctx)
}

// Data returns the folder of the simulator's data: AWS's Service Authorization Reference, by
// service, in actions/PREFIX.json and resourceTypes/PREFIX.json.
func Data(ctx context.Context) (string, error) {
	folder, err := fetch(ctx)
	return filepath.Join(folder, "node_modules", "@cloud-copilot", "iam-data", "data"), err
}

func start(folder string) (*Simulator, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return nil, err
	}
	s := &Simulator{cmd: exec.Command("node", "--input-type=module", "--eval", script, "--", folder)}
	s.cmd.Stderr = &s.stderr
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.out = bufio.NewReader(out)
	return s, s.cmd.Start()
}

// Stop ends the simulator. Its questions must be answered.
func (s *Simulator) Stop() {
	_ = s.in.Close() // ends the program
	_ = s.cmd.Wait()
}

// Ask evaluates the questions as IAM does, and returns for each whether it is allowed.
// It returns an error if a question is invalid: if IAM knows no such action, or the
// action takes no such resource or condition key.
func (s *Simulator) Ask(questions []Question) ([]bool, error) {
	var input []any
	for _, q := range questions {
		input = append(input, q.simulation())
	}
	text, err := json.Marshal(input)
	if err != nil {
		return nil, err
	}
	answer, err := s.exchange(append(text, '\n'))
	if err != nil {
		return nil, err
	}
	var answers []struct {
		Decision string          `json:"decision"`
		Error    json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(answer, &answers); err != nil || len(answers) != len(questions) {
		return nil, fmt.Errorf("IAM simulator: %d answers to %d questions, %w", len(answers), len(questions), err)
	}
	allowed := make([]bool, len(answers))
	for i, a := range answers {
		q := questions[i]
		if !slices.Contains([]string{"Allowed", "ExplicitlyDenied", "ImplicitlyDenied"}, a.Decision) {
			return nil, fmt.Errorf("the IAM simulator cannot answer whether %s may %s on %s with %v: %s %s", q.Principal, q.Action, q.Resource, q.Context, a.Decision, a.Error)
		}
		allowed[i] = a.Decision == "Allowed"
	}
	return allowed, nil
}

func (s *Simulator) exchange(line []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.in.Write(line)
	var answer []byte
	if err == nil {
		answer, err = s.out.ReadBytes('\n')
	}
	if err != nil {
		s.Stop() // afterwards no goroutine writes to stderr
		return nil, fmt.Errorf("IAM simulator: %w\n%s", err, s.stderr.Bytes())
	}
	return answer, nil
}

// simulation returns the question in the form of the npm package.
func (q Question) simulation() map[string]any {
	context := map[string]any{"aws:SecureTransport": "true", "aws:PrincipalArn": roleOf(q.Principal)}
	if arn := strings.Split(q.Principal, ":"); len(arn) > 4 {
		context["aws:PrincipalAccount"] = arn[4]
	}
	for key, value := range q.Context {
		if context[key] = value; value == nil {
			delete(context, key)
		}
	}
	simulation := map[string]any{
		"request": map[string]any{"principal": q.Principal, "action": q.Action,
			"resource": map[string]any{"resource": q.Resource, "accountId": q.Account}, "contextVariables": context},
		"identityPolicies": named(substituted(q.Identity, context)...), "serviceControlPolicies": []any{}, "resourceControlPolicies": []any{},
	}
	if q.Session != nil {
		simulation["sessionPolicy"] = substituted([]map[string]any{q.Session}, context)[0]
	}
	if q.Boundary != nil {
		simulation["permissionBoundaryPolicies"] = named(q.Boundary)
	}
	if q.ResourceP != nil {
		simulation["resourcePolicy"] = q.ResourceP
	}
	return simulation
}

func named(policies ...map[string]any) []any {
	out := []any{}
	for i, p := range policies {
		if p != nil {
			out = append(out, map[string]any{"name": fmt.Sprint("policy", i), "policy": p})
		}
	}
	return out
}

// substituted replaces the variables of principal tags in resources by their values.
// Without the replacement, the npm package takes the colon in "${aws:PrincipalTag/…}"
// for a separator of the ARN, and the resource matches nothing.
func substituted(policies []map[string]any, context map[string]any) []map[string]any {
	text, err := json.Marshal(policies)
	if err != nil {
		panic(err) // it was read from JSON
	}
	s := string(text)
	for key, value := range context {
		if v, ok := value.(string); ok && strings.HasPrefix(key, "aws:PrincipalTag/") && !strings.ContainsAny(v, "*?\"\\") {
			s = strings.ReplaceAll(s, "${"+key+"}", v)
		}
	}
	var out []map[string]any
	if err := json.Unmarshal([]byte(s), &out); err != nil {
		panic(err) // the values have no quotes
	}
	return out
}

// roleOf returns the ARN of the role of a session, as aws:PrincipalArn has it, and other
// ARNs unchanged. The ARN of a session does not contain the role's path.
func roleOf(principal string) string {
	part := strings.SplitN(principal, ":", 6)
	if len(part) < 6 {
		return principal
	}
	session, ok := strings.CutPrefix(part[5], "assumed-role/")
	if !ok {
		return principal
	}
	name, _, _ := strings.Cut(session, "/")
	return "arn:" + part[1] + ":iam::" + part[4] + ":role/" + name
}

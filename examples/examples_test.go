// Package examples_test checks that each example is a valid app. It also runs the tool to
// apply the examples that need no provider, component by component. The outputs of a
// component are variables of the next components.
package examples_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"

	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/graph"
	"github.com/fairlead/fairlead/pkg/pluginprotocol"
)

// builtIn returns the examples whose modules need no downloaded provider.
func builtIn() []string { return []string{"hello", "shop"} }

func load(t *testing.T, name string) *appspec.App {
	t.Helper()
	app, problems := appspec.Load(os.DirFS(name))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return app
}

func TestEveryExampleIsValidAndHasAReadme(t *testing.T) {
	folders, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		if !folder.IsDir() || folder.Name() == "policies" { // policies of customers, which are no app
			continue
		}
		t.Run(folder.Name(), func(t *testing.T) {
			app := load(t, folder.Name())
			if app.Name != folder.Name() || app.Description == "" {
				t.Errorf("the app has the name %q and the description %q, want the folder's name %q and a description", app.Name, app.Description, folder.Name())
			}
			if _, err := os.Stat(filepath.Join(folder.Name(), "README.md")); err != nil {
				t.Error(err)
			}
			for _, in := range app.Inputs {
				if in.Description == "" {
					t.Errorf("input %s has no description", in.Name)
				}
			}
		})
	}
}

// The test checks format and grammar without a tool. So on every machine it also checks
// the example that needs a provider.
func TestEveryModuleIsFormattedAndParses(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".tf" {
			return err
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if _, diagnostics := hclsyntax.ParseConfig(src, path, hcl.InitialPos); diagnostics.HasErrors() {
			t.Errorf("%s: %v", path, diagnostics)
		}
		if string(hclwrite.Format(src)) != string(src) {
			t.Errorf("%s is not formatted: run tofu fmt", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestShopIsADiamond(t *testing.T) {
	waves, err := graph.Order(load(t, "shop").Graph())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(waves), "[[network] [cache database] [web]]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestDemoInputsAreValidForTheShop(t *testing.T) {
	src, err := os.ReadFile("shop/demo.inputs.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var given map[string]any
	if err := yaml.Unmarshal(src, &given); err != nil {
		t.Fatal(err)
	}
	if _, err := load(t, "shop").CheckInputs(given); err != nil {
		t.Error(err)
	}
}

// transcript matches a line of the protocol of plugins in a page: > is to the program, < is from it.
var transcript = regexp.MustCompile(`(?m)^([<>]) (\{.*\})$`)

// The page of the protocol shows what the example really writes, and what a step accepts. The test replaces the folders of the page.
func TestProtocolPageShowsARealTranscript(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("NOT TESTED: there is no python3 on the PATH, with which the example runs")
	}
	page, err := os.ReadFile("../docs/reference/plugin-protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	job, greetings := filepath.Join(t.TempDir(), "greeting"), t.TempDir()
	if err := os.Mkdir(job, 0o700); err != nil {
		t.Fatal(err)
	}
	here, there := strings.NewReplacer("/jobs/greeting", job, "/srv/greetings", greetings), strings.NewReplacer(job, "/jobs/greeting", greetings, "/srv/greetings")
	var requests []pluginprotocol.Request
	var lines []string // of the request
	var shown [][]string
	for _, m := range transcript.FindAllStringSubmatch(string(page), -1) {
		if m[1] == "<" {
			shown[len(shown)-1] = append(shown[len(shown)-1], m[2])
			continue
		}
		r, err := pluginprotocol.DecodeRequest([]byte(m[2]))
		if err != nil {
			t.Fatalf("%v: %s", err, m[2])
		}
		requests, lines, shown = append(requests, r), append(lines, m[2]), append(shown, nil)
	}
	if len(requests) != 3 {
		t.Fatalf("the page has %d requests", len(requests))
	}
	for i, r := range requests {
		cmd := exec.CommandContext(t.Context(), python, "plugin-python/greeting/plugin")
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		cmd.Stdout = &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		io.WriteString(stdin, here.Replace(lines[i])+"\n")
		err = cmd.Wait() // closes stdin
		got := strings.Split(strings.TrimSpace(there.Replace(out.String())), "\n")
		if !slices.Equal(got, shown[i]) || (err != nil) != strings.Contains(out.String(), `"failed"`) {
			t.Errorf("%s: the program writes (%v)\n%s\nand the page shows\n%s", r.Operation, err, strings.Join(got, "\n"), strings.Join(shown[i], "\n"))
		}
		receiver := pluginprotocol.NewReceiver(r.Operation, func(pluginprotocol.Event) {})
		receiver.Write([]byte(strings.Join(shown[i], "\n") + "\n"))
		if last, err := receiver.Close(); err != nil || last == nil {
			t.Errorf("%s: a step refuses what the page shows: %v", r.Operation, err)
		}
	}
}

// tools returns the OpenTofu and Terraform binaries of this machine, by name.
func tools(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	if path := os.Getenv("FAIRLEAD_TOFU"); path != "" {
		found["FAIRLEAD_TOFU"] = path
	}
	for _, name := range []string{"tofu", "terraform"} {
		if path, err := exec.LookPath(name); err == nil {
			found[name] = path
		}
	}
	if len(found) == 0 {
		t.Skip("NOT TESTED: the examples are not run, because neither tofu nor terraform is on PATH and FAIRLEAD_TOFU is not set")
	}
	return found
}

// tool runs OpenTofu or Terraform in a module's folder.
type tool struct {
	path string
	env  []string
}

func newTool(t *testing.T, path string) tool {
	t.Helper()
	env := []string{"TF_IN_AUTOMATION=1", "TF_INPUT=0", "CHECKPOINT_DISABLE=1"}
	for _, entry := range os.Environ() {
		// This machine's settings of the tool must not affect the example.
		if !strings.HasPrefix(entry, "TF_") {
			env = append(env, entry)
		}
	}
	return tool{path: path, env: env}
}

func (tl tool) run(t *testing.T, dir string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tl.path, args...)
	cmd.Dir, cmd.Env = dir, tl.env
	out, err := cmd.Output()
	if err != nil {
		var stderr string
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			stderr = string(exit.Stderr)
		}
		t.Fatalf("%s %s: %v\n%s%s", tl.path, strings.Join(args, " "), err, out, stderr)
	}
	return out
}

// applied is an applied example: the folder and the outputs of each component.
type applied struct {
	dirs    map[string]string
	outputs map[string]map[string]appspec.Resolved
}

// apply applies the components one after the other, in the order of a deployment, in
// copies of the modules.
func apply(t *testing.T, tl tool, app *appspec.App, folder string, given map[string]any) applied {
	t.Helper()
	inputs, err := app.CheckInputs(given)
	if err != nil {
		t.Fatal(err)
	}
	done := applied{dirs: map[string]string{}, outputs: map[string]map[string]appspec.Resolved{}}
	scope := appspec.Scope{
		Inputs:  inputs,
		Install: map[string]string{"name": "acme", "id": "ins_test", "app": app.Name, "version": "ver_test"},
		Outputs: func(component, output string) (appspec.Resolved, bool) {
			r, ok := done.outputs[component][output]
			return r, ok
		},
	}
	waves, err := graph.Order(app.Graph())
	if err != nil {
		t.Fatal(err)
	}
	for _, wave := range waves {
		for _, name := range wave {
			c, _ := app.Component(name)
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(filepath.Join(folder, c.Source))); err != nil {
				t.Fatal(err)
			}
			vars := map[string]any{}
			for variable, value := range c.Vars {
				if vars[variable], _, err = value.Resolve(scope); err != nil {
					t.Fatal(err)
				}
			}
			data, err := json.Marshal(vars)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "fairlead.auto.tfvars.json"), data, 0o600); err != nil {
				t.Fatal(err)
			}
			tl.run(t, dir, "init", "-no-color")
			tl.run(t, dir, "validate", "-no-color")
			log := tl.run(t, dir, "apply", "-auto-approve", "-no-color")
			if strings.Contains(string(log), "correct-horse") {
				t.Errorf("the apply of %s shows the password:\n%s", name, log)
			}
			var outputs map[string]struct {
				Value     any
				Sensitive bool
			}
			if err := json.Unmarshal(tl.run(t, dir, "output", "-json"), &outputs); err != nil {
				t.Fatal(err)
			}
			done.dirs[name], done.outputs[name] = dir, map[string]appspec.Resolved{}
			for output, o := range outputs {
				done.outputs[name][output] = appspec.Resolved{Value: o.Value, Sensitive: o.Sensitive}
			}
		}
	}
	return done
}

func TestHelloGreets(t *testing.T) {
	for name, path := range tools(t) {
		t.Run(name, func(t *testing.T) {
			done := apply(t, newTool(t, path), load(t, "hello"), "hello", map[string]any{"who": "Ada"})
			if got := done.outputs["greeting"]["text"].Value; got != "Hello, Ada, from acme!" {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestShopAppliesAndWritesAReceipt(t *testing.T) {
	for name, path := range tools(t) {
		t.Run(name, func(t *testing.T) {
			tl := newTool(t, path)
			app := load(t, "shop")
			receipts := filepath.Join(t.TempDir(), "with a space")
			done := apply(t, tl, app, "shop", map[string]any{
				"zones": []any{"b", "a", "c"}, "replicas": 3, "public": true, "database-password": "correct-horse", "receipts": receipts,
			})

			url := done.outputs["database"]["url"]
			if url.Value != "postgres://shop:correct-horse@10.20.16.10:5432/acme" || !url.Sensitive {
				t.Errorf("the database's url is %+v", url)
			}
			web := done.outputs["web"]
			if got := fmt.Sprint(web["url"].Value, web["replicas"].Value); got != "https://acme.example.com[acme-web-0 acme-web-1 acme-web-2]" {
				t.Errorf("got %s", got)
			}
			file := filepath.Join(receipts, "acme.json")
			if web["receipt"].Value != file {
				t.Errorf("the output receipt is %v, want %s", web["receipt"].Value, file)
			}
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var receipt struct {
				WrittenAt string `json:"written_at"`
				Service   struct {
					URL, Version string
					Replicas     int
				}
			}
			if err := json.Unmarshal(data, &receipt); err != nil {
				t.Fatalf("%s: %v", data, err)
			}
			if receipt.WrittenAt == "" || receipt.Service.URL != "https://acme.example.com" || receipt.Service.Replicas != 3 || receipt.Service.Version != "shop ver_test" {
				t.Errorf("the receipt is %+v", receipt)
			}

			// A second plan is empty, so that a deployment can skip the component.
			for _, component := range []string{"network", "database", "cache", "web"} {
				plan := exec.CommandContext(t.Context(), tl.path, "plan", "-detailed-exitcode", "-no-color")
				plan.Dir, plan.Env = done.dirs[component], tl.env
				if out, err := plan.CombinedOutput(); err != nil {
					t.Errorf("the second plan of %s is not empty: %v\n%s", component, err, out)
				}
			}
			tl.run(t, done.dirs["web"], "destroy", "-auto-approve", "-no-color")
			if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("destroy did not remove the receipt: %v", err)
			}
		})
	}
}

func TestShopAppliesWithDefaults(t *testing.T) {
	for name, path := range tools(t) {
		t.Run(name, func(t *testing.T) {
			done := apply(t, newTool(t, path), load(t, "shop"), "shop", map[string]any{"database-password": "correct-horse"})
			if web := done.outputs["web"]; web["url"].Value != "http://acme.internal" || web["receipt"].Value != nil {
				t.Errorf("got %v", web)
			}
		})
	}
}

func TestBuiltInExamplesNeedNoProvider(t *testing.T) {
	for _, name := range builtIn() {
		err := filepath.WalkDir(name, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".tf" {
				return err
			}
			src, err := os.ReadFile(path)
			if err == nil && strings.Contains(string(src), "required_providers") {
				t.Errorf("%s requires a provider", path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Each access entry has the group of its operation, as the chart of the runner names it: jobs.groupPrefix, and the ending of the account
// of the role.
func TestAccessEntryHasTheGroupOfItsRole(t *testing.T) {
	src, err := os.ReadFile("eks-access/access/main.tf")
	if err != nil {
		t.Fatal(err)
	}
	file, problems := hclsyntax.ParseConfig(src, "main.tf", hcl.InitialPos)
	if problems.HasErrors() {
		t.Fatal(problems)
	}
	chart, err := os.ReadFile("../infra/charts/testdata/groups.golden.yaml")
	if err != nil {
		t.Fatal(err)
	}
	entries := 0
	for _, b := range file.Body.(*hclsyntax.Body).Blocks {
		if b.Type != "resource" || b.Labels[0] != "aws_eks_access_entry" {
			continue
		}
		entries++
		for _, role := range []string{"read-only", "deploy", "provision", "deprovision"} {
			groups, problems := b.Body.Attributes["kubernetes_groups"].Expr.Value(&hcl.EvalContext{Variables: map[string]cty.Value{
				"var":  cty.ObjectVal(map[string]cty.Value{"group_prefix": cty.StringVal("acme")}),
				"each": cty.ObjectVal(map[string]cty.Value{"key": cty.StringVal(role)}),
			}})
			if problems.HasErrors() || groups.LengthInt() != 1 {
				t.Fatalf("the entry of %s has the groups %#v: %v", role, groups, problems)
			}
			if group := groups.AsValueSlice()[0].AsString(); !regexp.MustCompile(`kind: Group\n +apiGroup: rbac.authorization.k8s.io\n +name: ` + group + `\n`).Match(chart) {
				t.Errorf("the entry of %s has the group %s, and the chart binds no role to it", role, group)
			}
		}
	}
	if entries != 1 {
		t.Errorf("the module has %d kinds of access entries, want 1", entries)
	}
}

package conformance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/pluginprotocol"
	"github.com/fairlead/fairlead/pkg/pluginprotocol/conformance"
	"github.com/fairlead/fairlead/pkg/pluginprotocol/serve"
)

// fault makes this test's program a plugin with one fault; "none": it has none.
const fault = "FAIRLEAD_TEST_FAULT"

func TestMain(m *testing.M) {
	if f := os.Getenv(fault); f != "" {
		k := keeper{f}
		if f == "no describe" {
			fmt.Println("hello")
		}
		ops := map[pluginprotocol.Operation]serve.Handler{pluginprotocol.Plan: k.plan, pluginprotocol.PlanDestroy: k.plan, pluginprotocol.Apply: k.apply, pluginprotocol.Destroy: k.apply}
		if f == "no destroy" {
			delete(ops, pluginprotocol.Destroy)
		}
		serve.Main(serve.Plugin{Name: "keeper", Version: "1.2.3", Operations: ops})
	}
	goleak.VerifyTestMain(m)
}

// keeper keeps a text in a file for each component. It is a correct plugin but for its fault.
type keeper struct{ fault string }

type keeperPlan struct {
	Component, File, Text string
	Exists                string // the digest of what the plan saw; "": nothing
	Destroy               bool
}

func (k keeper) is(f string) bool { return k.fault == f }

func see(file string) (string, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return fmt.Sprintf("%q", b), err
}

// count counts the calls with a folder.
func count(folder string) int {
	path := filepath.Join(folder, "count")
	b, _ := os.ReadFile(path)
	b = append(b, '.')
	os.WriteFile(path, b, 0o600)
	return len(b)
}

func (k keeper) plan(_ context.Context, req pluginprotocol.Request, out *serve.Emitter) error {
	var folder, text, password string
	if err := errors.Join(json.Unmarshal(req.Vars["folder"].Value, &folder), json.Unmarshal(req.Vars["text"].Value, &text), json.Unmarshal(req.Vars["password"].Value, &password)); err != nil {
		return serve.Fail(fairlead.ReasonSpecInvalid, "the variables folder, text and password must be texts: %v", err)
	}
	if k.is("logs the secret") {
		fmt.Fprintln(os.Stderr, "password", password)
	}
	if k.is("never ends") || k.is("ignores a stop") && count(folder) == 3 {
		for {
			<-time.After(time.Hour)
		}
	}
	if k.is("leaves a process") {
		exec.Command("sleep", "1000").Start()
	}
	if k.is("writes beside the workspace") {
		os.WriteFile(filepath.Join(filepath.Dir(req.Workspace), "cache"), nil, 0o600)
	}
	p := keeperPlan{Component: req.Component, File: filepath.Join(folder, req.Component), Text: text, Destroy: req.Operation == pluginprotocol.PlanDestroy}
	var err error
	if p.Exists, err = see(p.File); err != nil {
		return err
	}
	c := changeset.Change{Address: "text " + p.Component, Kind: "text", Action: changeset.Create, After: map[string]any{"text": text, "password": changeset.Sensitive}, Sensitive: []string{"/password"}}
	if k.is("shows the secret") {
		c.After = map[string]any{"password": password}
	}
	if k.is("differs") {
		c.Reason = fmt.Sprint(os.Getpid())
	}
	switch {
	case p.Destroy && p.Exists == "", !p.Destroy && p.Exists == fmt.Sprintf("%q", text):
		if out.NoOp(); k.is("does not converge") {
			return out.Change(c)
		}
	case p.Destroy:
		c.Action, c.Before, c.After = changeset.Delete, c.After, nil
		err = out.Change(c)
	default:
		err = out.Change(c)
	}
	b, merr := json.Marshal(p)
	if k.is("saves nothing") {
		return errors.Join(err, merr)
	}
	return errors.Join(err, merr, os.WriteFile(req.Plan, b, 0o600))
}

func (k keeper) apply(_ context.Context, req pluginprotocol.Request, out *serve.Emitter) error {
	var p keeperPlan
	b, err := os.ReadFile(req.Plan)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, &p); err != nil && !k.is("applies a damaged plan") {
		return serve.Fail(fairlead.ReasonPlanStale, "the saved plan is damaged")
	}
	if p.Component != req.Component && !k.is("applies a foreign plan") && !k.is("applies a damaged plan") {
		return serve.Fail(fairlead.ReasonPlanStale, "the saved plan is of component %s", p.Component)
	}
	switch exists, err := see(p.File); {
	case err != nil:
		return err
	case exists != p.Exists && k.is("refuses without the reason"):
		return errors.New("the file has changed")
	case exists != p.Exists && !k.is("applies a stale plan"):
		return serve.Fail(fairlead.ReasonPlanStale, "the file %s has changed since the plan", p.File)
	}
	if !k.is("does not state a change") {
		if err := out.Mutating(); err != nil {
			return err
		}
	}
	if k.is("plans in an apply") {
		out.Change(changeset.Change{Address: "a", Action: changeset.Create})
	}
	if p.Destroy {
		return os.Remove(p.File)
	}
	if k.is("applies nothing") {
		return nil
	}
	if err := os.WriteFile(p.File, []byte(p.Text), 0o600); err != nil {
		return err
	}
	return out.Output("file", p.File, false)
}

// program writes a program with the fault and returns its path.
func program(t *testing.T, f string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "plugin")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+fault+"='"+f+"' exec '"+self+"'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func spec() conformance.Spec {
	return conformance.Spec{Vars: map[string]json.RawMessage{"folder": json.RawMessage(`"${folder}"`), "text": json.RawMessage(`"hello"`)},
		Secrets: map[string]json.RawMessage{"password": json.RawMessage(`"correct horse\t"`)}, GraceSeconds: 20}
}

func TestCorrectProgramPassesEachCheck(t *testing.T) {
	r, err := conformance.Run(t.Context(), program(t, "none"), spec(), os.Environ())
	if err != nil || !r.Passed || r.Name != "keeper" || r.Version != "1.2.3" || len(r.Checks) != 18 {
		t.Fatalf("report %+v, error %v", r, err)
	}
	for _, c := range r.Checks {
		if c.Result != conformance.Passed {
			t.Errorf("%s: %s: %s\n%s", c.Name, c.Result, c.Message, c.Log)
		}
	}
	none := spec()
	none.Vars["password"], none.Secrets = json.RawMessage(`"x"`), nil
	if r, err := conformance.Run(t.Context(), program(t, "none"), none, os.Environ()); err != nil || !r.Passed || r.Checks[len(r.Checks)-1].Result != conformance.Skipped {
		t.Errorf("without a secret: report %+v, error %v", r, err)
	}
}

// A check that no fault can fail checks nothing.
func TestEachFaultFailsItsCheck(t *testing.T) {
	for f, want := range map[string]string{
		"no describe":                 "describe names the plugin and its operations",
		"no destroy":                  "describe names the plugin and its operations",
		"saves nothing":               "a plan finds what is missing and saves a plan",
		"differs":                     "the same plan again has the same changes",
		"never ends":                  "a plan finds what is missing and saves a plan",
		"ignores a stop":              "a plan that is stopped ends within the grace period",
		"leaves a process":            "a plan finds what is missing and saves a plan",
		"writes beside the workspace": "a plan finds what is missing and saves a plan",
		"applies a damaged plan":      "a damaged plan is refused",
		"applies a foreign plan":      "a plan of another component is refused",
		"does not state a change":     "an apply of the saved plan finishes",
		"plans in an apply":           "an apply of the saved plan finishes",
		"applies nothing":             "a plan after the apply finds no changes",
		"does not converge":           "a plan after the apply finds no changes",
		"applies a stale plan":        "an applied plan is stale and is refused",
		"refuses without the reason":  "an applied plan is stale and is refused",
		"logs the secret":             "no event and no log has a secret",
		"shows the secret":            "no event and no log has a secret",
	} {
		t.Run(f, func(t *testing.T) {
			s := spec()
			switch f { // a busy machine starts a process late, so only these two have short times
			case "never ends":
				s.TimeoutSeconds = 3
			case "ignores a stop":
				s.GraceSeconds = 1
			}
			r, err := conformance.Run(t.Context(), program(t, f), s, os.Environ())
			if err != nil || r.Passed {
				t.Fatalf("report %+v, error %v", r, err)
			}
			failed := ""
			for _, c := range r.Checks {
				if c.Result == conformance.Failed {
					failed = c.Name
					if c.Message == "" {
						t.Errorf("%s has no message", c.Name)
					}
					break
				}
			}
			if failed != want {
				t.Errorf("the first failed check is %q, want %q: %+v", failed, want, r)
			}
			b, err := json.Marshal(r)
			if err != nil || bytes.Contains(b, []byte("correct horse")) {
				t.Errorf("the report shows the secret (%v):\n%s", err, b)
			}
		})
	}
}

func TestProgramThatCannotStartIsNamed(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plugin")
	if err := os.WriteFile(plain, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(t.TempDir(), "plugin")
	if err := os.WriteFile(missing, []byte("#!/no/such/program\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"no file": filepath.Join(t.TempDir(), "plugin"), "no executable file": plain, "no interpreter": missing, "a folder": t.TempDir()} {
		_, err := conformance.Run(t.Context(), path, spec(), os.Environ())
		if _, ok := errors.AsType[*conformance.StartError](err); !ok {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

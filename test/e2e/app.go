//go:build linux

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// module creates two resources, the second after the first. A resource first waits at its
// gate, if the test has created a gate. Then it appends its name and the step's folder to the file
// "record"; the folder's name has the job and the attempt. So the tool itself records
// what it created, and the test does not rely on the control plane's records. During a
// plan, the module sends a request that the test can hold.
const module = `
variable "dir" { type = string }
variable "ask" { type = string }
variable "before" { type = string }

data "terraform_remote_state" "ask" {
  backend = "http"
  config  = { address = var.ask }
}

resource "terraform_data" "first" {
  provisioner "local-exec" {
    command = "if [ -p ${var.dir}/first ]; then read go < ${var.dir}/first; fi; echo first $FAIRLEAD_STEP >> ${var.dir}/record; seq -f 'first-line-%04g' 1 500"
  }
}

resource "terraform_data" "second" {
  depends_on = [terraform_data.first]
  provisioner "local-exec" {
    command = "if [ -p ${var.dir}/second ]; then ${var.before} read go < ${var.dir}/second; fi; echo second $FAIRLEAD_STEP >> ${var.dir}/record; seq -f 'second-line-%04g' 1 500"
  }
}

output "first" { value = terraform_data.first.id }
output "second" { value = terraform_data.second.id }
`

// The names of the app and its component.
const (
	App       = "gated"
	Component = "web"
)

const appFile = `fairlead: v1
name: ` + App + `
inputs:
  dir: {type: string}
  ask: {type: string}
  before: {type: string}
components:
  ` + Component + `:
    type: terraform
    source: ./web
    vars:
      dir: ${inputs.dir}
      ask: ${inputs.ask}
      before: ${inputs.before}
`

func (w *World) writeApp() string {
	w.t.Helper()
	dir := filepath.Join(w.dir, "app")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "web"), 0o755),
		os.WriteFile(filepath.Join(dir, "app.yaml"), []byte(appFile), 0o644),
		os.WriteFile(filepath.Join(dir, "web", "main.tf"), []byte(module), 0o644)); err != nil {
		w.t.Fatal(err)
	}
	return dir
}

// Install is an install of the app.
type Install struct {
	Name string
	ID   string
	w    *World
	dir  string
}

// Install creates an install. If the second resource has a gate, its shell runs the
// commands of before first. They are "", or end with a separator such as ";" or "&".
func (w *World) Install(name, before string) *Install {
	w.t.Helper()
	i := &Install{Name: name, w: w, dir: filepath.Join(w.dir, "gates", name)}
	if err := os.MkdirAll(i.dir, 0o755); err != nil {
		w.t.Fatal(err)
	}
	inputs := map[string]json.RawMessage{}
	for input, value := range map[string]string{"dir": i.dir, "ask": w.Proxy.URL + gatePath + name, "before": before} {
		inputs[input], _ = json.Marshal(value) // a string can be encoded
	}
	in, err := w.Client.CreateInstall(w.t.Context(), wire.CreateInstallRequest{Name: name, App: App, Inputs: inputs})
	if err != nil {
		w.t.Fatal(err)
	}
	i.ID = in.ID
	return i
}

// Gate holds a resource of the install. It is a FIFO that the provisioner reads from.
type Gate struct {
	w      *World
	path   string
	writer *os.File // open while a provisioner waits
}

// Gate creates a gate for a resource: "first" or "second".
func (i *Install) Gate(resource string) *Gate {
	i.w.t.Helper()
	g := &Gate{w: i.w, path: filepath.Join(i.dir, resource)}
	if err := syscall.Mkfifo(g.path, 0o600); err != nil {
		i.w.t.Fatal(err)
	}
	return g
}

// Arrived waits until the resource is held.
func (g *Gate) Arrived() {
	g.w.t.Helper()
	Until(g.w.t, "the resource "+filepath.Base(g.path)+" is held", func() bool {
		var err error
		g.writer, err = os.OpenFile(g.path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		return err == nil // fails while the FIFO has no reader
	})
}

// Open lets the resource continue and removes the gate.
func (g *Gate) Open() {
	g.w.t.Helper()
	if err := os.Remove(g.path); err != nil {
		g.w.t.Fatal(err)
	}
	if g.writer != nil {
		_, _ = g.writer.WriteString("go\n") // some tests kill the reader
		g.writer.Close()
	}
}

// Created returns the notes of the tool: for each created resource, in order, its name
// and the attempt that created it.
func (i *Install) Created() []Creation {
	i.w.t.Helper()
	b, err := os.ReadFile(filepath.Join(i.dir, "record"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		i.w.t.Fatal(err)
	}
	var all []Creation
	for line := range strings.Lines(string(b)) {
		var c Creation
		var dir string
		if _, err := fmt.Sscan(line, &c.Resource, &dir); err != nil {
			i.w.t.Fatalf("the record has the line %q: %v", line, err)
		}
		c.Attempt = filepath.Base(dir) // of the step's folder, …/steps/<attempt>
		all = append(all, c)
	}
	return all
}

// Creation is a resource that the tool created.
type Creation struct{ Resource, Attempt string }

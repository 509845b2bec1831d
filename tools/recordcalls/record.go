package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/tools/moto"
)

// The account, Region and install of a recording. The tests of infra/runnerstack have the
// same.
const (
	account = "111122223333"
	region  = "eu-central-1"
	install = "ins_01hzy3v5k8d9m0q2r4t6w8x0z1"

	rolePath = "/fairlead-app/" + install + "/"
	boundary = "arn:aws:iam::" + account + ":policy/fairlead/" + install + "/boundary-0"
)

//go:embed record.py
var recordCode string

// settings is beside each case: the provider as a runner starts it, and the variables that a
// runner gives to an app.
const settings = `
provider "aws" {
  region            = "` + region + `"
  s3_use_path_style = true
  max_retries       = 2
}

variable "changed" {
  type    = bool
  default = false
}

variable "role_path" {
  type    = string
  default = "` + rolePath + `"
}

variable "permissions_boundary" {
  type    = string
  default = "` + boundary + `"
}
`

// Recording has the calls of a module.
type Recording struct {
	Module     string    `json:"module"`
	Version    string    `json:"version"`
	Commit     string    `json:"commit"`
	Recorded   string    `json:"recorded"`             // with which programs
	Incomplete string    `json:"incomplete,omitempty"` // what failed; the recording ends there
	Applied    []Applied `json:"applied"`              // the plans that were applied, in their order
	Calls      []Call    `json:"calls"`                // in the order in which they came; each once
}

// Applied is a plan that was applied.
type Applied struct {
	Operation string   `json:"operation"` // of the job: apply, destroy
	Changes   []Change `json:"changes"`   // each pair once
	Calls     []int    `json:"calls"`     // of the apply, not of its plan: their places in the recording's calls
}

// Change is an action on a type of resources in a plan.
type Change struct {
	Action string `json:"action"` // the tool's names, with + between the two of a replacement
	Type   string `json:"type"`
}

func (r Recording) json() []byte {
	var b bytes.Buffer
	head := r
	head.Calls, head.Applied = nil, nil
	text, err := json.MarshalIndent(head, "", " ")
	if err != nil {
		panic(err) // strings
	}
	b.Write(bytes.TrimSuffix(text, []byte("null,\n \"calls\": null\n}")))
	writeLines(&b, r.Applied)
	b.WriteString(",\n \"calls\": ")
	writeLines(&b, r.Calls)
	b.WriteString("\n}\n")
	return b.Bytes()
}

// writeLines writes a list with each element on a line of its own.
func writeLines[T any](b *bytes.Buffer, list []T) {
	b.WriteString("[")
	for i, e := range list {
		line, err := json.Marshal(e)
		if err != nil {
			panic(err) // strings and lists of them
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n  ")
		b.Write(line)
	}
	b.WriteString("\n ]")
}

// changesOf returns the changes of a plan that OpenTofu shows as JSON.
func changesOf(shown []byte) (changes []Change, err error) {
	var plan struct {
		Changes []struct {
			Type   string
			Change struct{ Actions []string }
		} `json:"resource_changes"`
	}
	if err := json.Unmarshal(shown, &plan); err != nil {
		return nil, fmt.Errorf("read the plan: %w", err)
	}
	for _, c := range plan.Changes {
		change := Change{Action: strings.Join(c.Change.Actions, "+"), Type: c.Type}
		if change.Action != "no-op" && !slices.Contains(changes, change) {
			changes = append(changes, change)
		}
	}
	return changes, nil
}

// recorder records one module after another.
type recorder struct {
	clones, provider, tofu string
	actions                *actions

	readOnly policy // AWS's own, after the first recording
}

// policy is a managed policy of AWS.
type policy struct {
	Version string
	Actions []string
}

// readPolicy reads a policy as record.py writes it.
func readPolicy(file string) (p policy, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return p, err
	}
	var in struct {
		DefaultVersionId string
		Document         struct {
			Statement []struct {
				Effect string
				Action []string
			}
		}
	}
	if err := json.Unmarshal(text, &in); err != nil {
		return p, err
	}
	p.Version = in.DefaultVersionId
	for _, s := range in.Document.Statement {
		if s.Effect != "Allow" {
			return p, fmt.Errorf("the policy has a statement with the effect %s", s.Effect)
		}
		p.Actions = append(p.Actions, s.Action...)
	}
	return p, nil
}

// request is a line of record.py.
type request struct {
	Service, Operation string
	Params, Output     map[string]any
	Status             int
	Error              string
}

var firstLine = regexp.MustCompile(`^# (\S+/(\S+)) (v\S+) ([0-9a-f]{40})\n`)

func (r *recorder) record(ctx context.Context, file string) (rec Recording, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return rec, err
	}
	head := firstLine.FindSubmatch(text)
	if head == nil {
		return rec, errors.New(`the first line is not "# OWNER/REPOSITORY VERSION COMMIT"`)
	}
	rec = Recording{Module: string(head[1]), Version: string(head[3]), Commit: string(head[4])}
	dir, err := os.MkdirTemp("", "recordcalls-")
	if err != nil {
		return rec, err
	}
	defer os.RemoveAll(dir)
	work, lines := filepath.Join(dir, "work"), filepath.Join(dir, "requests")
	module := filepath.Join(work, "module")
	if err := os.MkdirAll(module, 0o755); err != nil {
		return rec, err
	}
	if err := extract(ctx, filepath.Join(r.clones, string(head[2])), rec.Commit, module); err != nil {
		return rec, err
	}
	config := fmt.Sprintf("provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", r.provider)
	if err := errors.Join(os.WriteFile(filepath.Join(work, "main.tf"), text, 0o644), os.WriteFile(filepath.Join(work, "settings.tf"), []byte(settings), 0o644),
		os.WriteFile(filepath.Join(dir, "tofurc"), []byte(config), 0o644), os.WriteFile(lines, nil, 0o644)); err != nil {
		return rec, err
	}

	server := moto.Extended(recordCode)
	start := server.Command
	server.Command = func(lib string, port int) *exec.Cmd {
		cmd := start(lib, port)
		cmd.Env = append(cmd.Env, "RECORD="+lines, "MOTO_ACCOUNT_ID="+account)
		return cmd
	}
	launched, err := server.Launch(ctx)
	if err != nil {
		return rec, err
	}
	defer launched.Stop()
	if err := launched.Ready(); err != nil {
		return rec, err
	}
	var output []byte // of the last command
	tofu := func(args ...string) error {
		cmd := exec.CommandContext(ctx, r.tofu, args...)
		cmd.Dir = work
		cmd.Env = append(os.Environ(), "TF_CLI_CONFIG_FILE="+filepath.Join(dir, "tofurc"), "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1", "AWS_ENDPOINT_URL="+launched.URL,
			// S3 Control puts the account before the endpoint's host, so its requests go through the server as a proxy.
			"AWS_ENDPOINT_URL_S3_CONTROL=http://s3-control."+region+".amazonaws.com", "HTTP_PROXY="+launched.URL, "NO_PROXY=127.0.0.1",
			"AWS_ACCESS_KEY_ID=recorded", "AWS_SECRET_ACCESS_KEY=recorded", "AWS_EC2_METADATA_DISABLED=true", "TF_AWS_DEFAULT_TAGS_"+tagResource+"="+install)
		var err error
		if output, err = cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("tofu %s: %w\n%s", strings.Join(args, " "), err, output)
		}
		return nil
	}
	if err := tofu("init", "-input=false", "-no-color"); err != nil {
		return rec, err
	}
	if err := tofu("version", "-no-color"); err != nil {
		return rec, err
	}
	rec.Recorded = strings.Join(strings.Fields(string(output)), " ")
	if r.readOnly, err = readPolicy(lines + ".read-only"); err != nil {
		return rec, err
	}
	var all []request
	jobs := [][]string{{}, {"-var=changed=true"}, {"-var=changed=true", "-destroy"}}
	w := newWorld(r.actions)
	for i, variables := range jobs {
		operation := "apply"
		if i == 2 {
			operation = "destroy"
		}
		for _, step := range []struct {
			operation string
			args      []string
		}{
			{"plan", append([]string{"plan", "-input=false", "-no-color", "-out=plan"}, variables...)},
			{operation, []string{"apply", "-input=false", "-no-color", "plan"}},
		} {
			stepErr := tofu(step.args...)
			requests, err := read(lines, len(all))
			if err != nil {
				return rec, err
			}
			all = append(all, requests...)
			for _, q := range requests {
				calls, err := w.calls(q)
				if err != nil {
					return rec, err
				}
				for _, c := range calls {
					c.Operation = step.operation
					at := rec.add(c)
					if last := len(rec.Applied) - 1; step.operation != "plan" && !slices.Contains(rec.Applied[last].Calls, at) {
						rec.Applied[last].Calls = append(rec.Applied[last].Calls, at)
					}
				}
			}
			if stepErr != nil {
				fmt.Fprintln(os.Stderr, stepErr)
				rec.Incomplete = fmt.Sprintf("the server does not play what the %s %d needs: %s", step.operation, i+1, firstError(output))
				return rec, nil
			}
			if step.operation == "plan" {
				if err := tofu("show", "-json", "plan"); err != nil {
					return rec, err
				}
				changes, err := changesOf(output)
				if err != nil {
					return rec, err
				}
				rec.Applied = append(rec.Applied, Applied{Operation: operation, Changes: changes})
			}
		}
	}
	return rec, nil
}

// add adds a call that the recording does not have, and returns its place.
func (r *Recording) add(c Call) int {
	for i, other := range r.Calls {
		if other.equal(c) {
			return i
		}
	}
	r.Calls = append(r.Calls, c)
	return len(r.Calls) - 1
}

var errorLine = regexp.MustCompile(`(?m)^Error: (.*)$`)

// firstError returns the first error in the output of OpenTofu.
func firstError(output []byte) string {
	if m := errorLine.FindSubmatch(output); m != nil {
		return string(m[1])
	}
	return "OpenTofu names no error"
}

// read returns the requests after the first n.
func read(file string, n int) (out []request, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 64<<20)
	for i := 0; lines.Scan(); i++ {
		if i < n {
			continue
		}
		var q request
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			return nil, err
		}
		out = append(out, q)
	}
	return out, lines.Err()
}

// extract writes the files of a commit into the folder dir, without its examples: a module
// does not need them, and some have large files that a partial clone lacks.
func extract(ctx context.Context, repository, commit, dir string) error {
	git := func(args ...string) ([]byte, error) {
		out, err := exec.CommandContext(ctx, "git", append([]string{"-C", repository}, args...)...).Output()
		if err != nil {
			return nil, fmt.Errorf("git %s in %s: %w", strings.Join(args, " "), repository, err)
		}
		return out, nil
	}
	list, err := git("ls-tree", "-r", "-z", "--name-only", commit)
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		if strings.HasPrefix(name, "examples/") || strings.HasPrefix(name, "wrappers/") || strings.HasPrefix(name, ".") {
			continue
		}
		body, err := git("cat-file", "blob", commit+":"+name)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), body, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestSituationsEndByTheirAdvice runs scripts of deployments that need a person. Each
// script uses only the commands that `fairlead deployment show` offers, and ends with
// success. The programs, the tool and the failures are real.
func TestSituationsEndByTheirAdvice(t *testing.T) {
	tool := toolOrSkip(t)
	p := params("diagnosis")
	p.Files, p.Dir = storiesOf(t, p.Dir), ""
	p.Deadline = time.Now().Add(8 * patience) // after a failed script, an agent can drain forever
	p.Cmds["ready"] = ready
	p.Cmds["id"] = id
	p.Cmds["until"] = until
	p.Cmds["offered"] = offered
	p.Cmds["killstep"] = killStep
	p.Cmds["freeze"] = freeze
	p.Cmds["refuse"] = refuse
	setup := p.Setup
	p.Setup = func(env *testscript.Env) error {
		env.Setenv("FAIRLEAD_TOFU", tool)
		env.Setenv("TOOL", tool)
		// The modules create files outside the runner's folder, which a confined tool
		// cannot do.
		env.Setenv("FAIRLEAD_ISOLATION", "off")
		env.Values[refuserKey{}] = &refuser{}
		return setup(env)
	}
	testscript.Run(t, p)
}

// offered runs the first command in the last standard output that begins with PREFIX. It
// adds the arguments ARG to the command. It fails if the exit code is not CODE:
// "offered CODE PREFIX [ARG...]".
func offered(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: offered CODE PREFIX [ARG...]")
	}
	for _, m := range regexp.MustCompile("`fairlead ([^`]+)`").FindAllStringSubmatch(ts.ReadFile("stdout"), -1) {
		if strings.HasPrefix(m[1], args[1]) {
			exits(ts, false, append(append([]string{args[0], "fairlead"}, strings.Fields(m[1])...), args[2:]...))
			return
		}
	}
	ts.Fatalf("no `fairlead %s …` is offered in:\n%s", args[1], ts.ReadFile("stdout"))
}

// killStep waits until the step and the tool of a job's attempt run, and kills the step.
// With the argument "tool", it also kills the tool: "killstep JOB EPOCH [tool]".
func killStep(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: killstep JOB EPOCH [tool]")
	}
	attempt := args[0] + "-" + args[1]
	tool := toolPID(ts, attempt)
	step := readPID(ts, filepath.Join("runner", "steps", attempt, "process.json"), func(b []byte) (int, error) {
		var record struct{ PID int }
		err := json.Unmarshal(b, &record)
		return record.PID, err
	})
	ts.Check(syscall.Kill(step, syscall.SIGKILL))
	if len(args) > 2 {
		_ = syscall.Kill(-tool, syscall.SIGKILL) // the tool and its children, if the tool leads a process group
		_ = syscall.Kill(tool, syscall.SIGKILL)  // an error is ignored: the tool may have ended with its step
	}
}

// freeze suspends the tool of a job's attempt with SIGSTOP: "freeze JOB EPOCH".
func freeze(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: freeze JOB EPOCH")
	}
	ts.Check(syscall.Kill(toolPID(ts, args[0]+"-"+args[1]), syscall.SIGSTOP))
}

func toolPID(ts *testscript.TestScript, attempt string) int {
	return readPID(ts, filepath.Join("runner", "work", attempt, "tool.pid"), func(b []byte) (int, error) {
		return strconv.Atoi(strings.TrimSpace(string(b)))
	})
}

// refuser serves at the address of a control plane that ended. It refuses requests for a
// state, as a control plane does: neither the tool nor its step repeats them then. It
// answers 503 to all other requests, like a broken gateway.
type refuser struct{ server *http.Server }

type refuserKey struct{}

// refuse starts the refuser at an address with "refuse ADDRESS". It stops the refuser
// with "refuse no-more".
func refuse(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: refuse ADDRESS|no-more")
	}
	r := ts.Value(refuserKey{}).(*refuser)
	if args[0] == "no-more" {
		ts.Check(r.server.Close())
		return
	}
	l, err := net.Listen("tcp", args[0])
	ts.Check(err)
	r.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/runner/v1/state/") {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusForbidden)
			io.WriteString(w, `{"type":"urn:fairlead:problem:other-state","status":403,"detail":"refused by the test"}`) //nolint:errcheck // the client may have closed the connection
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	})}
	go r.server.Serve(l) // returns when the server is closed
	ts.Defer(func() { r.server.Close() })
}

// readPID waits for a file that has the ID of a process, and returns the ID.
func readPID(ts *testscript.TestScript, path string, parse func([]byte) (int, error)) int {
	for deadline := time.Now().Add(patience); ; {
		b, err := os.ReadFile(ts.MkAbs(path))
		if err == nil {
			if pid, err := parse(b); err == nil && pid > 1 {
				return pid
			}
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s does not contain the id of a process: %v", path, err)
		}
		<-time.After(5 * time.Millisecond) // before the next read of the file, which another process writes
	}
}

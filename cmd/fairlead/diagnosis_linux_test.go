package main

import (
	"encoding/json"
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

// TestSituationsEndByTheirAdvice tells the stories of people for whom something does not go on by
// itself: from what happened to its good end, by the commands that
// `fairlead deployment show` offers and no others. The programs and the tool
// are real, and so is what befalls them.
func TestSituationsEndByTheirAdvice(t *testing.T) {
	tool := toolOrSkip(t)
	p := params("diagnosis")
	p.Deadline = time.Now().Add(8 * patience) // an agent would drain for ever in a story that failed
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
		// The modules make files beside the runner's folder, where a confined tool
		// makes none.
		env.Setenv("FAIRLEAD_ISOLATION", "off")
		env.Values[refuserKey{}] = &refuser{}
		return setup(env)
	}
	testscript.Run(t, p)
}

// offered runs the first command that begins with the words among those that
// were offered on the standard output, as it is, and wants an exit code:
// "offered CODE WORDS [ARG...]". Further arguments are added.
func offered(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: offered CODE WORDS [ARG...]")
	}
	for _, m := range regexp.MustCompile("`fairlead ([^`]+)`").FindAllStringSubmatch(ts.ReadFile("stdout"), -1) {
		if strings.HasPrefix(m[1], args[1]) {
			exits(ts, false, append(append([]string{args[0], "fairlead"}, strings.Fields(m[1])...), args[2:]...))
			return
		}
	}
	ts.Fatalf("no `fairlead %s …` is offered in:\n%s", args[1], ts.ReadFile("stdout"))
}

// killStep ends the step of a job's attempt as kill -9 does, and with "tool"
// its tool too: "killstep JOB EPOCH [tool]". It waits until they run.
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
		_ = syscall.Kill(-tool, syscall.SIGKILL) // with its children, if it leads its group
		_ = syscall.Kill(tool, syscall.SIGKILL)  // it may have ended with its step
	}
}

// freeze stops the tool of a job's attempt, so that it hears nothing: "freeze
// JOB EPOCH".
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

// refuser stands in front of where a control plane was, as a broken gateway
// does: it forbids every access to a state, which the tool takes for final, and
// is not available for anything else.
type refuser struct{ server *http.Server }

type refuserKey struct{}

// refuse starts the refuser at an address, "refuse ADDRESS", or ends it,
// "refuse no-more".
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
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	})}
	go r.server.Serve(l) // until it is closed
	ts.Defer(func() { r.server.Close() })
}

// readPID waits for a file that names a process.
func readPID(ts *testscript.TestScript, path string, parse func([]byte) (int, error)) int {
	for deadline := time.Now().Add(patience); ; {
		b, err := os.ReadFile(ts.MkAbs(path))
		if err == nil {
			if pid, err := parse(b); err == nil && pid > 1 {
				return pid
			}
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s names no process: %v", path, err)
		}
		<-time.After(5 * time.Millisecond) // between two looks at a file that another process writes
	}
}

// Command hostile is the tool of a job that tries to reach everything that is not its own: files, processes, sockets and services of
// the agent, of its step, and of the job of another install that runs beside it. It reports to the test what it reached, by the table
// of package reach. It changes nothing that it reaches.
//
//	hostile                  attacks what the file targets.json in its working folder names
//	hostile victim-NONCE     is the tool of the other job: it waits until the test closes its connection
//	hostile fork ADDRESS     starts the daemon and ends, so that the daemon has no parent of the job
//	hostile daemon ADDRESS   waits until the test closes its connection
package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	ossignal "os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/test/hostile/reach"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "fork":
		return start("daemon", args[1])
	case len(args) == 2 && args[0] == "daemon":
		return remain(args[1], reach.Message{Daemon: true})
	}
	// A tool of a module is started in its folder, or beside it.
	text, err := os.ReadFile("targets.json")
	if errors.Is(err, fs.ErrNotExist) {
		var self string
		if self, err = os.Executable(); err == nil {
			text, err = os.ReadFile(filepath.Join(filepath.Dir(self), "targets.json"))
		}
	}
	if errors.Is(err, fs.ErrNotExist) { // it holds the network of a container
		signals := make(chan os.Signal, 1)
		ossignal.Notify(signals, syscall.SIGTERM)
		<-signals
		return nil
	}
	if err != nil {
		return err
	}
	var t reach.Targets
	if err := json.Unmarshal(text, &t); err != nil {
		return err
	}
	if len(args) == 1 && strings.HasPrefix(args[0], "victim-") {
		return victim(t)
	}
	return attack(t)
}

// start starts this program in a session of its own, without an environment.
func start(args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, args...)
	cmd.Env, cmd.SysProcAttr = []string{}, &syscall.SysProcAttr{Setsid: true}
	return cmd.Start()
}

// remain sends a message to the test and ends when the test closes the connection.
func remain(address string, m reach.Message) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := json.NewEncoder(conn).Encode(m); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, conn) // until the test closes it
	return nil
}

// victim has what a tool has: files, ports, memory.
func victim(t reach.Targets) error {
	folder, err := os.Getwd()
	if err != nil {
		return err
	}
	file := filepath.Join(folder, "secret")
	if err := os.WriteFile(file, []byte("of the other job"), 0o600); err != nil {
		return err
	}
	if file, err = filepath.EvalSymlinks(file); err != nil { // the folder's own name is a link that all jobs of the component share
		return err
	}
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer port.Close()
	name := "hostile-" + t.Nonce
	abstract, err := net.Listen("unix", "@"+name)
	if err != nil {
		return err
	}
	defer abstract.Close()
	return remain(t.Report, reach.Message{Victim: &reach.Victim{File: file, Port: port.Addr().String(), Name: name}})
}

// try is one attempt. A nil error means that it reached its target.
type try func() error

var errAbsent = errors.New("it is not there")

// attack tries everything, and reports it.
func attack(t reach.Targets) error {
	conn, err := net.Dial("tcp", t.Report)
	if err != nil {
		return err
	}
	defer conn.Close()
	p, err := look(t)
	if err != nil {
		return err
	}
	data := func(path ...string) string { return filepath.Join(append([]string{t.Data}, path...)...) }
	tries := map[reach.Capability]try{
		reach.ReadAgentKey:      anyOf(read(data("identity.key")), read(data("identity.json"))),
		reach.ReadInstallSeed:   read(data("install-key.seed")),
		reach.ReadPolicy:        read(t.Policy),
		reach.ReadLedger:        read(data("ledger", "planted")),
		reach.ReadAgentMemory:   anyOf(each(p.agent, environ), each(p.agent, memory)),
		reach.ReadOwnStep:       anyOf(each(p.step, environ), each(p.step, memory)),
		reach.ReadUserFile:      read(t.UserFile),
		reach.ReadOtherState:    read(data("state", "ins_3", "db", "terraform.tfstate")),
		reach.ReadOtherPlan:     read(data("plans", "job_other", "plan")),
		reach.ReadOtherWork:     read(t.Victim.File),
		reach.ReadOtherEnviron:  each(p.otherTool, environ),
		reach.ReadOtherMemory:   each(p.otherTool, memory),
		reach.ReadOtherStep:     anyOf(each(p.otherStep, environ), each(p.otherStep, memory)),
		reach.SeeOtherProcesses: each(slices.Concat(p.otherTool, p.otherStep), func(int) error { return nil }),
		reach.ReadOtherSecret:   secret(t),
		reach.ReadOtherAccount:  each(slices.Concat(p.otherTool, p.otherStep), account),
		reach.UseOtherState:     each(p.otherTool, useState),
		reach.WriteAgentFile:    anyOf(write(data("identity.json")), create(data("identity.json"))),
		reach.WritePolicy:       anyOf(write(t.Policy), create(t.Policy)),
		reach.WriteLedger:       anyOf(write(data("ledger", "planted")), create(data("ledger", "planted"))),
		reach.WriteProvider:     create(data("plugin-cache", "planted")),
		reach.WriteToolFacts:    create(data("tools", "planted")),
		reach.WriteArtifact:     create(data("artifacts", "planted")),
		reach.WriteUserFile:     create(t.UserFile),
		reach.WriteSharedTmp:    write(t.Tmp),
		reach.WriteOtherState:   write(data("state", "ins_3", "db", "terraform.tfstate")),
		reach.WriteOtherWork:    anyOf(write(t.Victim.File), create(t.Victim.File)),
		reach.SignalAgent:       each(p.agent, signal),
		reach.SignalOwnStep:     each(p.step, signal),
		reach.SignalOtherStep:   each(p.otherStep, signal),
		reach.SignalOtherTool:   each(p.otherTool, signal),
		reach.TraceAgent:        each(p.agent, trace),
		reach.TraceOwnStep:      each(p.step, trace),
		reach.TraceOtherStep:    each(p.otherStep, trace),
		reach.TraceOtherTool:    each(p.otherTool, trace),
		reach.ConnectPlane:      get(t.Plane + "/healthz"),
		reach.ConnectMetadata:   get("http://169.254.169.254/latest/meta-data/"),
		reach.ConnectAgent:      get("http://" + t.Status + "/healthz"),
		reach.ConnectSocket:     dial("unix", t.Socket),
		reach.ConnectOtherPort:  dial("tcp", t.Victim.Port),
		reach.ConnectOtherName:  dialName(t.Victim.Name),
	}
	m := reach.Message{Tried: map[string]string{}}
	for _, c := range slices.Sorted(maps.Keys(tries)) {
		m.Tried[string(c)] = ""
		if err := tries[c](); err != nil {
			m.Tried[string(c)] = err.Error()
		}
	}
	// The test decides whether the daemon outlives the job. The tool only waits until it runs.
	m.Tried[string(reach.OutliveJob)] = "the test decides"
	if err := start("fork", t.Report); err != nil {
		return err
	}
	if err := json.NewEncoder(conn).Encode(m); err != nil {
		return err
	}
	_, err = bufio.NewReader(conn).ReadString('\n') // the test writes a line when the daemon has connected
	return err
}

// anyOf reaches its target if one of the tries does.
func anyOf(tries ...try) try {
	return func() (errs error) {
		for _, t := range tries {
			err := t()
			if err == nil {
				return nil
			}
			errs = errors.Join(errs, err)
		}
		return errs
	}
}

// each tries f on processes, and reaches its target with one of them.
func each(pids []int, f func(pid int) error) try {
	tries := []try{func() error { return errAbsent }}
	for _, pid := range pids {
		tries = append(tries, func() error { return f(pid) })
	}
	return anyOf(tries...)
}

func read(path string) try {
	return func() error {
		if path == "" {
			return errAbsent
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.Read(make([]byte, 1))
		return err
	}
}

// write opens a file as a writer does, and writes nothing.
func write(path string) try {
	return func() error {
		if path == "" {
			return errAbsent
		}
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		return f.Close()
	}
}

// create makes a file beside one of others, and removes it. A container may have a folder of its own with this name, without that file.
func create(beside string) try {
	return func() error {
		if beside == "" {
			return errAbsent
		}
		if _, err := os.Lstat(beside); err != nil {
			return err
		}
		f, err := os.CreateTemp(filepath.Dir(beside), "hostile-")
		if err != nil {
			return err
		}
		return errors.Join(f.Close(), os.Remove(f.Name()))
	}
}

func environ(pid int) error { return read(fmt.Sprintf("/proc/%d/environ", pid))() }

// account reads the token of the service account in the files of a process.
func account(pid int) error {
	return read(fmt.Sprintf("/proc/%d/root/var/run/secrets/kubernetes.io/serviceaccount/token", pid))()
}

// memory reads from the first mapping of a process.
func memory(pid int) error {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(string(text), "-")
	at, err := strconv.ParseInt(first, 16, 64)
	if err != nil {
		return errAbsent // it shows no mapping
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.ReadAt(make([]byte, 1), at)
	return err
}

func signal(pid int) error { return unix.Kill(pid, 0) }

// trace becomes the tracer of a process, without stopping it, and ends the trace by the end of its thread.
func trace(pid int) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the kernel detaches when the thread ends
		err := unix.PtraceSeize(pid)
		done <- err
	}()
	return <-done
}

const patience = 3 * time.Second

func dial(network, address string) try {
	return func() error {
		if address == "" {
			return errAbsent
		}
		conn, err := net.DialTimeout(network, address, patience)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

func dialName(name string) try {
	if name == "" {
		return func() error { return errAbsent }
	}
	return dial("unix", "@"+name)
}

// get reaches its target with any answer.
func get(url string) try {
	return func() error {
		res, err := (&http.Client{Timeout: patience}).Get(url)
		if err != nil {
			return err
		}
		return res.Body.Close()
	}
}

// useState reads the state of the job whose tool has this process.
func useState(pid int) error {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return err
	}
	of := func(name string) string {
		for v := range bytes.SplitSeq(text, []byte{0}) {
			if value, ok := strings.CutPrefix(string(v), name+"="); ok {
				return value
			}
		}
		return ""
	}
	req, err := http.NewRequest(http.MethodGet, of("TF_HTTP_ADDRESS"), nil)
	if err != nil {
		return err
	}
	req.SetBasicAuth(of("TF_HTTP_USERNAME"), of("TF_HTTP_PASSWORD"))
	res, err := (&http.Client{Timeout: patience}).Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusNoContent && res.StatusCode != http.StatusNotFound { // it may be empty
		return fmt.Errorf("the answer is %s", res.Status)
	}
	return nil
}

// token is the file with the token of a pod's service account.
const token = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// secret reads the Secret of the other job's step, by its name or in a list.
func secret(t reach.Targets) try {
	return func() error {
		if t.API == "" || t.Attempt == "" {
			return errAbsent
		}
		bearer, err := os.ReadFile(token)
		if err != nil {
			return err
		}
		client := &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		name := "fairlead-" + strings.ReplaceAll(strings.ToLower(t.Attempt), "_", "-")
		ask := func(path string) error {
			req, err := http.NewRequest(http.MethodGet, t.API+path, nil)
			if err != nil {
				return err
			}
			req.Header.Set("Authorization", "Bearer "+string(bearer))
			res, err := client.Do(req)
			if err != nil {
				return err
			}
			defer res.Body.Close()
			if body, err := io.ReadAll(res.Body); err != nil || !bytes.Contains(body, []byte(`"name":"`+name+`"`)) {
				return fmt.Errorf("%s: %s, %v", path, res.Status, err)
			}
			return nil
		}
		return anyOf(func() error { return ask(t.Secrets + "/" + name) }, func() error { return ask(t.Secrets) })()
	}
}

// processes are those that the tool sees and that are not its own.
type processes struct{ agent, step, otherStep, otherTool []int }

// look finds the processes by their arguments.
func look(t reach.Targets) (p processes, err error) {
	own := map[int]bool{}
	for pid := os.Getpid(); pid > 0 && !own[pid]; pid = parent(pid) {
		own[pid] = true
	}
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return p, err
	}
	for _, path := range all {
		pid, err := strconv.Atoi(filepath.Base(path))
		text, rerr := os.ReadFile(filepath.Join(path, "cmdline"))
		if err != nil || rerr != nil || len(text) == 0 {
			continue // it has ended
		}
		args := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
		switch {
		case slices.Contains(args, "step") && own[pid]:
			p.step = append(p.step, pid)
		case slices.Contains(args, "step") && t.Attempt != "" && strings.Contains(string(text), "steps/"+t.Attempt):
			p.otherStep = append(p.otherStep, pid)
		case slices.Contains(args, "agent") && slices.Contains(args, t.Data):
			p.agent = append(p.agent, pid)
		case slices.Contains(args, "victim-"+t.Nonce):
			p.otherTool = append(p.otherTool, pid)
		}
	}
	if len(p.step) == 0 {
		return p, errors.New("the tool does not find its own step, so it cannot attack it")
	}
	return p, nil
}

// parent returns the parent of a process; 0 if it has none here.
func parent(pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "PPid:"); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(value))
			return n
		}
	}
	return 0
}

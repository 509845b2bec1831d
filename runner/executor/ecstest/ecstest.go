// Package ecstest simulates the part of Amazon ECS that moto lacks: the machines
// on which the containers of tasks run.
package ecstest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	logtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"

	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/proctree"
)

// relativeURI is the variable with the address of the credentials of a task's role.
const relativeURI = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"

// stopTimeout is the stop timeout in the task definition of the tests.
const stopTimeout = 2 * time.Second

// Cloud is a proxy in front of moto. It adds what moto lacks: it runs the
// containers of tasks, and it makes RunTask idempotent. moto checks each request
// against the service's model and stores the tasks. Cloud adds their states, exit
// codes, and reasons with the texts of ECS' documentation. Safe for concurrent
// use.
type Cloud struct {
	t        testing.TB
	moto     string
	program  string
	pullable string // the task definition family whose image exists
	logs     *cloudwatchlogs.Client
	group    string
	server   *httptest.Server

	Secrets map[string]string // values of the secrets that task definitions refer to, by ARN
	// Environ is added to the environment of each container: what a process here needs, and a container
	// of the image has.
	Environ []string
	// Disk is the path at which a container has its own volume. A container here is a process and cannot
	// have its own folder at that path. So Disk is replaced in its command and environment by a folder
	// that only this task has. "": it is not replaced.
	Disk string
	// Credentials returns the variables by which a container finds the credentials of its task's role, an
	// ARN. nil: the variable that ECS sets, whose address is not served here. Set Environ, Disk and
	// Credentials before the first task.
	Credentials func(role string) []string
	// Command returns the command that runs a container, until its end. nil: the container is a process of the
	// program, or of the program at its entry point. Set it before the first task.
	Command func(c Container) *exec.Cmd
	// Variables are those that images give to their containers, by image.
	Variables map[string][]string
	// Missing are the images that cannot be pulled, of definitions that are registered through the Cloud.
	Missing []string
	// Event gets the environment in the overrides of each task before its container starts, as a rule of the
	// account's event bus does. It must not call the Cloud. Set it before the first task.
	Event func(env []string)
	// CPU gives the container of each task the CPU of its task. nil: the container may use this machine's.
	// Set it before the first task.
	CPU *Shares
	// Unknown is the number of requests after a task's start that do not find the
	// task, because ECS is eventually consistent. Set it before the first task.
	Unknown int
	// Slow makes each container wait until StartContainers is called. Set it before
	// the first task.
	Slow bool
	// StartTime is how long the start of each container takes. Set it before the first task.
	StartTime time.Duration
	pending   []*task
	mu        sync.Mutex
	defined   map[string]definition // by ARN
	received  []string              // bodies of requests
	answers   map[string][]byte     // of RunTask, by client token
	tasks     map[string]*task      // by ARN
	running   sync.WaitGroup
}

// Container is a container of a task.
type Container struct {
	Task      string // ARN
	Name      string
	Image     string
	Program   string // its entry point; "": that of the image
	Args, Env []string
	Mounts    []Mount
}

// Mount is a volume of a task in a container.
type Mount struct {
	SourceVolume, ContainerPath string
	ReadOnly                    bool
}

// definition is the part of a task definition that Cloud uses.
type definition struct {
	cpu        string // in 1,024ths of a CPU
	containers []defined
}

// step returns the container that the overrides of a task are for.
func (d definition) step() defined {
	for _, c := range d.containers {
		if c.Name == stepContainer {
			return c
		}
	}
	return defined{}
}

// stepContainer is the name of the container of a step.
const stepContainer = "step"

// defined is a container in a task definition.
type defined struct {
	Name, Image         string
	EntryPoint, Command []string
	Secrets             []reference
	MountPoints         []Mount
	DependsOn           []struct{ ContainerName, Condition string }
}

// reference is a secret of a container in a task definition.
type reference struct{ Name, ValueFrom string }

// container is a container that has ended.
type container struct {
	name string
	exit int
}

type task struct {
	cmd       *exec.Cmd
	first     []container // that have ended before cmd
	role      string      // ARN of the task's role; "": none
	startedBy string
	start     func() // starts the container of a slow cloud; nil: it has started, or never will
	mark      string
	created   time.Time
	started   time.Time
	unknown   int // remaining requests that do not find the task
	// The fields below are set after the end of the task.
	over     bool
	exit     *int
	reason   string // of the container
	stopCode string
	stopped  string // reason why the task was stopped
}

// New starts a Cloud in front of the moto at the URL moto. The Cloud stops when the
// test ends. Its containers are processes of the program. The image exists for the
// task definition pullable, and for each definition that is registered through the
// Cloud. The output of containers goes to the log group.
func New(t testing.TB, moto, program, pullable, group string, logs *cloudwatchlogs.Client) *Cloud {
	c := &Cloud{t: t, moto: moto, program: program, pullable: pullable, group: group, logs: logs, answers: map[string][]byte{}, tasks: map[string]*task{},
		defined: map[string]definition{}, Secrets: map[string]string{}}
	c.server = httptest.NewServer(c)
	t.Cleanup(func() {
		c.server.Close()
		c.mu.Lock()
		for _, k := range c.tasks {
			k.start = nil // a container whose start takes longer than the test never starts
			if k.cmd != nil && k.cmd.Process != nil && !k.over {
				k.cmd.Process.Kill()
			}
		}
		c.mu.Unlock()
		c.running.Wait()
	})
	return c
}

// URL returns the endpoint that answers like AWS.
func (c *Cloud) URL() string { return c.server.URL }

// Roles returns the ARNs of the roles of the tasks, by the name of the attempt that the agent gave as
// startedBy. An attempt with two tasks has two roles.
func (c *Cloud) Roles() map[string][]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	roles := map[string][]string{}
	for _, k := range c.tasks {
		roles[k.startedBy] = append(roles[k.startedBy], k.role)
	}
	return roles
}

// Received returns the bodies of all requests, oldest first.
func (c *Cloud) Received() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.received)
}

// ServeHTTP answers a request to AWS.
func (c *Cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	var in map[string]any
	json.Unmarshal(body, &in)
	c.mu.Lock()
	c.received = append(c.received, string(body))
	c.mu.Unlock()
	token, _ := in["clientToken"].(string)
	if operation == "RunTask" {
		// Handle one request at a time: two requests with the same token may arrive
		// together.
		c.mu.Lock()
		defer c.mu.Unlock()
		if b, ok := c.answers[token]; ok && token != "" {
			w.Header().Set("Content-Type", "application/x-amz-json-1.1")
			w.Write(b)
			return
		}
	}
	status, header, answer, err := c.forward(r, body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	if status == http.StatusOK {
		switch operation {
		case "RunTask":
			c.run(in, answer)
			c.answers[token] = answer
		case "RegisterTaskDefinition":
			c.define(answer)
		case "StopTask":
			c.stop(in["task"].(string))
		case "DescribeTasks":
			answer = c.amend(answer)
		case "ListTasks":
			answer = c.active(answer)
		}
	}
	if status != http.StatusOK {
		c.t.Logf("AWS refuses %s with %d: %.300s", operation, status, answer)
	}
	w.Header().Set("Content-Type", header.Get("Content-Type"))
	w.WriteHeader(status)
	w.Write(answer)
}

func (c *Cloud) forward(r *http.Request, body []byte) (int, http.Header, []byte, error) {
	req, err := http.NewRequestWithContext(r.Context(), r.Method, c.moto+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	req.Header = r.Header.Clone()
	req.Header.Del("Accept-Encoding")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, b, err
}

// define stores a registered task definition.
func (c *Cloud) define(answer []byte) {
	var out struct {
		TaskDefinition struct {
			TaskDefinitionArn, Cpu string
			ContainerDefinitions   []defined
		}
	}
	err := json.Unmarshal(answer, &out)
	d := definition{out.TaskDefinition.Cpu, out.TaskDefinition.ContainerDefinitions}
	if err != nil {
		c.t.Errorf("a definition that cannot be read: %v: %s", err, answer)
		return
	}
	if d.step().Name == "" { // of an app's own service; a task of a runner that names it is not found
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.defined[out.TaskDefinition.TaskDefinitionArn] = d
}

// run starts the container of a task. The caller holds mu.
func (c *Cloud) run(in map[string]any, answer []byte) {
	var out struct {
		Tasks []struct{ TaskArn string }
	}
	if err := json.Unmarshal(answer, &out); err != nil || len(out.Tasks) == 0 {
		return // moto refused the request, and the driver gets moto's answer
	}
	arn := out.Tasks[0].TaskArn
	k := &task{mark: "TEST_TASK=" + arn, created: time.Now(), unknown: c.Unknown}
	c.tasks[arn] = k
	of, made := c.defined[in["taskDefinition"].(string)]
	missing := ""
	if in["taskDefinition"] != c.pullable && !made {
		missing = "registry.example/missing/image:1"
	}
	for _, d := range of.containers {
		if slices.Contains(c.Missing, d.Image) {
			missing = d.Image
		}
	}
	if missing != "" {
		k.over, k.stopCode = true, "TaskFailedToStart"
		k.stopped = "CannotPullContainerError: pull image manifest has been retried 1 time(s): failed to resolve ref " + missing + ": not found"
		return
	}
	overrides := in["overrides"].(map[string]any)
	k.role, _ = overrides["taskRoleArn"].(string)
	k.startedBy, _ = in["startedBy"].(string)
	onDisk := c.volumes(of)
	step := overrides["containerOverrides"].([]any)[0].(map[string]any)
	var args []string
	for _, a := range step["command"].([]any) {
		args = append(args, onDisk.Replace(a.(string)))
	}
	// The variables that ECS sets in a container of a task with a role. A step in an image of its own has a list of them, in
	// which others stand for this one too.
	set := []string{relativeURI + "=/v2/credentials/" + arn}
	inList := strings.NewReplacer()
	if c.Credentials != nil {
		set = c.Credentials(k.role)
		var names []string
		for _, v := range set {
			name, _, _ := strings.Cut(v, "=")
			names = append(names, name)
		}
		inList = strings.NewReplacer(relativeURI, strings.Join(names, ","))
	}
	region := strings.Split(arn, ":")[3]
	set = slices.Concat([]string{k.mark, "AWS_REGION=" + region}, set, c.Environ)
	env := slices.Concat(c.Variables[of.step().Image], set)
	for _, r := range of.step().Secrets {
		env = append(env, r.Name+"="+c.Secrets[r.ValueFrom])
	}
	var given []string
	for _, v := range step["environment"].([]any) {
		v := v.(map[string]any)
		value := onDisk.Replace(v["value"].(string))
		if v["name"] == executor.OwnVariable {
			value = inList.Replace(value)
		}
		given = append(given, v["name"].(string)+"="+value)
	}
	if c.Event != nil {
		c.Event(given)
	}
	env = append(env, given...)
	command := func(d defined, args, env []string) *exec.Cmd {
		program := ""
		if len(d.EntryPoint) > 0 {
			program = onDisk.Replace(d.EntryPoint[0])
		}
		if c.Command != nil {
			return c.Command(Container{Task: arn, Name: cmp.Or(d.Name, stepContainer), Image: d.Image, Program: program, Args: args, Env: env, Mounts: d.MountPoints})
		}
		cmd := exec.Command(cmp.Or(program, c.program), args...)
		cmd.Env = env
		return cmd
	}
	k.cmd = command(of.step(), args, env)
	if c.CPU != nil {
		cpu, ok := overrides["cpu"].(string)
		if !ok {
			cpu = of.cpu
		}
		units, err := strconv.Atoi(cpu)
		if err = errors.Join(err, c.CPU.Limit(k.cmd, units)); err != nil {
			c.t.Error(err)
		}
	}
	output := filepath.Join(c.t.TempDir(), "output")
	f, err := os.Create(output)
	if err != nil {
		c.t.Error(err)
		return
	}
	k.cmd.Stdout, k.cmd.Stderr = f, f
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	mebibytes, _ := strconv.ParseInt(fmt.Sprint(overrides["memory"]), 10, 64)
	k.start = func() {
		defer f.Close()
		k.start = nil
		for _, needed := range of.step().DependsOn {
			i := slices.IndexFunc(of.containers, func(d defined) bool { return d.Name == needed.ContainerName })
			d := of.containers[i]
			var args []string
			for _, a := range d.Command {
				args = append(args, onDisk.Replace(a))
			}
			first := command(d, args, slices.Concat(c.Variables[d.Image], set))
			out, err := first.CombinedOutput()
			if k.first = append(k.first, container{d.Name, first.ProcessState.ExitCode()}); err != nil && needed.Condition == "SUCCESS" {
				c.t.Logf("the container %s of a task: %v: %s", d.Name, err, out)
				k.over, k.stopCode, k.stopped = true, "TaskFailedToStart", "Task failed to start"
				return
			}
		}
		if err := k.cmd.Start(); err != nil {
			k.over, k.stopCode, k.stopped = true, "TaskFailedToStart", "CannotStartContainerError: "+err.Error()
			return
		}
		k.started = time.Now()
		c.running.Go(func() { c.watch(k, arn, output, mebibytes<<20) })
	}
	if c.Slow {
		c.pending = append(c.pending, k)
		return
	}
	if c.StartTime > 0 {
		time.AfterFunc(c.StartTime, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if k.start != nil {
				k.start()
			}
		})
		return
	}
	k.start()
}

// volumes creates a folder for each volume that a task of several containers has, and for its disk. The Replacer replaces
// the paths of the mounts, except /tmp, which all processes share. If Command is set, only the disk is replaced.
func (c *Cloud) volumes(of definition) *strings.Replacer {
	var pairs []string
	folders := map[string]string{}
	if c.Disk != "" {
		pairs = append(pairs, c.Disk, c.t.TempDir())
	}
	for _, d := range of.containers {
		for _, m := range d.MountPoints {
			if len(of.containers) == 1 || c.Command != nil || m.ContainerPath == "/tmp" || m.ContainerPath == c.Disk {
				continue
			}
			if folders[m.SourceVolume] == "" {
				folders[m.SourceVolume] = c.t.TempDir()
			}
			pairs = append(pairs, m.ContainerPath, folders[m.SourceVolume])
		}
	}
	return strings.NewReplacer(pairs...)
}

// Pending returns the startedBy of the tasks whose containers wait for StartContainers.
func (c *Cloud) Pending() (ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.pending {
		if k.start != nil {
			ids = append(ids, k.startedBy)
		}
	}
	return ids
}

// StartContainers starts the containers that wait. For a slow cloud it stands for the
// time that the start of a task takes.
func (c *Cloud) StartContainers() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.pending {
		if k.start != nil {
			k.start()
		}
	}
	c.pending = nil
}

// Running returns the startedBy of the tasks whose containers run.
func (c *Cloud) Running() (ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.tasks {
		if !k.started.IsZero() && !k.over {
			ids = append(ids, k.startedBy)
		}
	}
	return ids
}

// Started returns when the container of the task with this startedBy started. The time is zero if it
// has not started.
func (c *Cloud) Started(by string) time.Time {
	_, started := c.Start(by)
	return started
}

// Start returns when the task with this startedBy was requested, and when its container started. The
// times are zero if it has not started.
func (c *Cloud) Start(by string) (requested, started time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.tasks {
		if k.startedBy == by && !k.started.IsZero() {
			return k.created, k.started
		}
	}
	return time.Time{}, time.Time{}
}

// Kill kills the container of the task that a caller started as of, as the loss of its
// host does.
func (c *Cloud) Kill(of string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.tasks {
		if k.startedBy == of && !k.started.IsZero() && !k.over {
			k.cmd.Process.Kill()
		}
	}
}

// watch waits for the end of a container. It kills a container that exceeds its
// memory limit, in bytes; 0: unlimited.
func (c *Cloud) watch(k *task, arn, output string, limit int64) {
	over := make(chan struct{})
	oom := make(chan bool, 1)
	go func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-over:
				oom <- false
				return
			case <-tick.C:
			}
			if resident(k.cmd.Process.Pid) > limit && limit > 0 {
				k.cmd.Process.Kill()
				oom <- true
				return
			}
		}
	}()
	err := k.cmd.Wait()
	close(over)
	code, reason := 0, ""
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
		if ws := exit.Sys().(syscall.WaitStatus); ws.Signaled() {
			code = 128 + int(ws.Signal())
		}
	}
	if <-oom {
		reason = "OutOfMemoryError: Container killed due to memory usage"
	}
	proctree.KillAll(context.Background(), 0, k.mark)
	c.ship(arn, output)
	c.mu.Lock()
	defer c.mu.Unlock()
	k.over, k.exit, k.reason = true, &code, reason
	if k.stopCode == "" {
		k.stopCode, k.stopped = "EssentialContainerExited", "Essential container in task exited"
	}
}

// ship uploads the container's output as its log driver does.
func (c *Cloud) ship(arn, output string) {
	b, err := os.ReadFile(output)
	if err != nil || len(b) == 0 {
		return
	}
	stream := "step/step/" + arn[strings.LastIndexByte(arn, '/')+1:]
	ctx := context.Background()
	if _, err := c.logs.CreateLogStream(ctx, &cloudwatchlogs.CreateLogStreamInput{LogGroupName: &c.group, LogStreamName: &stream}); err != nil {
		c.t.Error(err)
		return
	}
	now := time.Now().UnixMilli()
	var batch []logtypes.InputLogEvent
	for line := range strings.Lines(string(b)) {
		batch = append(batch, logtypes.InputLogEvent{Message: aws.String(strings.TrimSuffix(line, "\n")), Timestamp: aws.Int64(now)})
	}
	if _, err := c.logs.PutLogEvents(ctx, &cloudwatchlogs.PutLogEventsInput{LogGroupName: &c.group, LogStreamName: &stream, LogEvents: batch}); err != nil {
		c.t.Error(err)
	}
}

// stop sends SIGTERM to a task, and SIGKILL after the stop timeout.
func (c *Cloud) stop(arn string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.tasks[arn]
	if k == nil || k.over || k.stopCode != "" {
		return
	}
	k.stopCode, k.stopped = "UserInitiated", "Task stopped by user"
	if k.start != nil { // the container has not started
		k.start, k.over = nil, true
		return
	}
	k.cmd.Process.Signal(syscall.SIGTERM)
	time.AfterFunc(stopTimeout, func() { k.cmd.Process.Kill() })
}

// active removes tasks that have ended or were stopped from an answer of
// ListTasks: ECS does not list them by default.
func (c *Cloud) active(answer []byte) []byte {
	var out struct {
		TaskArns []string `json:"taskArns"`
	}
	if err := json.Unmarshal(answer, &out); err != nil {
		c.t.Error(err)
		return answer
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	out.TaskArns = slices.DeleteFunc(out.TaskArns, func(arn string) bool {
		k := c.tasks[arn]
		if k != nil && k.unknown > 0 {
			k.unknown--
			return true
		}
		return k == nil || k.over || k.stopCode != ""
	})
	b, err := json.Marshal(out)
	if err != nil {
		c.t.Error(err)
		return answer
	}
	return b
}

// amend adds the states of containers to an answer of DescribeTasks.
func (c *Cloud) amend(answer []byte) []byte {
	var out map[string]any
	if err := json.Unmarshal(answer, &out); err != nil {
		c.t.Error(err)
		return answer
	}
	tasks, _ := out["tasks"].([]any)
	failures, _ := out["failures"].([]any)
	c.mu.Lock()
	defer c.mu.Unlock()
	tasks = slices.DeleteFunc(tasks, func(d any) bool {
		arn := d.(map[string]any)["taskArn"].(string)
		k := c.tasks[arn]
		if k == nil || k.unknown <= 0 {
			return false
		}
		k.unknown--
		failures = append(failures, map[string]any{"arn": arn, "reason": "MISSING"})
		return true
	})
	out["tasks"], out["failures"] = tasks, failures
	for _, d := range tasks {
		d := d.(map[string]any)
		k := c.tasks[d["taskArn"].(string)]
		if k == nil {
			continue
		}
		container := map[string]any{"name": "step", "lastStatus": "RUNNING"}
		d["lastStatus"], d["createdAt"] = "RUNNING", float64(k.created.UnixMilli())/1000
		if k.start != nil {
			container["lastStatus"], d["lastStatus"] = "PENDING", "PENDING"
		}
		if !k.started.IsZero() {
			d["startedAt"] = float64(k.started.UnixMilli()) / 1000
		}
		if k.over {
			d["lastStatus"], d["stopCode"], d["stoppedReason"] = "STOPPED", k.stopCode, k.stopped
			container["lastStatus"] = "STOPPED"
			if k.exit != nil {
				container["exitCode"] = *k.exit
			}
			if k.reason != "" {
				container["reason"] = k.reason
			}
		}
		list := []any{container}
		for _, f := range k.first {
			list = append(list, map[string]any{"name": f.name, "lastStatus": "STOPPED", "exitCode": f.exit})
		}
		d["containers"] = list
	}
	b, err := json.Marshal(out)
	if err != nil {
		c.t.Error(err)
		return answer
	}
	return b
}

// resident returns the resident memory of a process in bytes, or 0 if unknown.
func resident(pid int) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b))
	if len(f) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(f[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// Find returns the first identifier of that name in an answer of moto's EC2 at
// that URL.
func Find(t testing.TB, endpoint, region, action, name string) string {
	t.Helper()
	form := url.Values{"Action": {action}, "Version": {"2016-11-15"}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=id/20260101/"+region+"/ec2/aws4_request, SignedHeaders=host, Signature=0")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	m := regexp.MustCompile("<" + name + ">([^<]+)<").FindSubmatch(b)
	if err != nil || m == nil {
		t.Fatalf("%s: %v: %s", action, err, b)
	}
	return string(m[1])
}

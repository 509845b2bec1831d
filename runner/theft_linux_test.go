package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity/awsiam/bound"
	"github.com/fairlead/fairlead/pkg/identity/ststest"
	"github.com/fairlead/fairlead/runner/executor/ecstest"
	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/tools/dockerd"
	"github.com/fairlead/fairlead/tools/program"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// The kinds of secrets in the world of the test.
const (
	ownOperation   = "credentials of the role of its own operation"
	otherOperation = "credentials of the role of another job"
	ofTask         = "credentials of the task's role"
	ofMachine      = "credentials of the machine"
	launchToken    = "a launch token"
	leaseToken     = "a lease token"
	stateToken     = "the password for a state" // the script of the thief has no state, so its job does not pass it on
	sessionToken   = "a session token of the agent"
	warmToken      = "the token of a step that was started ahead"
	startingRunner = "the environment of a runner that starts" // not a secret: the place where a launch token would be

	// Of the planted leaks.
	atBothVersions = "a secret at a listener of IPv6 and IPv4"
	atAbstract     = "a secret at an abstract socket"
	atSocketFile   = "a secret at a socket file"
	inPipe         = "a secret in an open pipe"
	inMemoryFile   = "a secret in an open file without a name"
	inSocket       = "a secret in an open socket"

	ofSession = "credentials of the session " // and its name: check turns it into ownOperation or otherOperation
)

// secrets are the secrets that exist, and those that a tool found.
type secrets struct {
	mu    sync.Mutex
	kinds map[string]string // by secret
	found map[string]string // the first place where a kind was found, by kind
}

func (s *secrets) exists(kind, secret string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kinds[secret] = kind
}

// look looks for the secrets in what the thief got from a place.
func (s *secrets) look(place string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	note := func(kind string) {
		if s.found[kind] == "" {
			s.found[kind] = place
		}
	}
	if place == startingRunner {
		note(startingRunner)
	}
	for secret, kind := range s.kinds {
		if bytes.Contains(data, []byte(secret)) {
			note(kind)
		}
	}
}

// theft is the world of one row: a control plane, AWS, and containers of the runner's image with the settings of the customer's stack.
type theft struct {
	*secrets
	t        *testing.T
	plane    *plane.Plane
	sts      *ststest.Server
	engine   string // address
	docker   *client.Client
	image    string
	pause    string // image of the program that holds the network of a task
	ports    []string
	url      string // of the control plane, as runners see it
	stsURL   string
	report   string // address to which the thief reports
	row      row
	thief    string // ID of the thief's job
	victim   chan net.Conn
	reported chan error
	sockets  string // folder with a socket of a planted leak, which containers have as /leak

	mu     sync.Mutex
	warmed []string // IDs of the jobs that steps got which were started ahead
}

// row is a place where a tool runs.
type row struct {
	tasks bool   // each job has a task of its own
	warm  bool   // the thief's task was started before its job was known
	init  bool   // planted: ECS's init process
	env   string // planted: a variable of the container that tools get, with this name
	ec2   bool   // planted: the metadata service of the machine can be reached, as on EC2 without ECS_AWSVPC_BLOCK_IMDS
	open  bool   // planted: the image's user can read the runner's program
	leaks bool   // planted: listeners and open descriptors with secrets
	off   bool   // the kernel has no Landlock, as on Fargate
	finds []string
}

var (
	callerKey = regexp.MustCompile(`Credential=(ASIA[0-9]+)/`)
)

func newTheft(t *testing.T, engine, image, pause string, r row) *theft {
	t.Helper()
	w := &theft{secrets: &secrets{kinds: map[string]string{}, found: map[string]string{}}, t: t, engine: engine, image: image, pause: pause, row: r,
		sts: ststest.New(time.Now), victim: make(chan net.Conn, 1), reported: make(chan error, 1)}
	var err error
	if w.docker, err = client.New(client.WithHost(engine)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.docker.Close() })
	to := &url.URL{Scheme: "http"}
	w.url = recordTokens(t, to, w.record)
	w.plane = plane.New(t, plane.Options{Stack: true, STS: stsOver(t, w.sts), At: w.url})
	to.Host = w.plane.Registry()
	aws := httptest.NewServer(http.HandlerFunc(w.assume))
	t.Cleanup(aws.Close)
	collector, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { collector.Close() })
	go w.collect(collector)
	w.stsURL, w.report = aws.URL, collector.Addr().String()
	w.ports = []string{to.Host, strings.TrimPrefix(w.url, "http://"), strings.TrimPrefix(aws.URL, "http://"), w.report}
	return w
}

// record records the tokens of an answer of the control plane, and which job a step got that was started ahead.
func (w *theft) record(path string, body []byte, tokens map[string][]string) {
	kinds := map[string]string{"launch_token": launchToken, "lease_token": leaseToken, "state_token": stateToken, "token": sessionToken}
	if path == wire.StartAhead.Path {
		kinds["token"] = warmToken
	}
	for field, all := range tokens {
		for _, token := range all {
			w.exists(kinds[field], token)
			if kinds[field] == launchToken || kinds[field] == warmToken {
				for _, role := range []string{"provision", "deploy", "deprovision", "read-only"} {
					w.exists(kinds[field], bound.Token(token, stackRoles+"step-"+role)) // as a task gets it
				}
			}
		}
	}
	if strings.HasPrefix(path, wire.StartAhead.Path+"/") && strings.HasSuffix(path, "/job") {
		var got wire.Claim
		if err := json.Unmarshal(body, &got); err != nil {
			w.t.Errorf("the answer to a step that was started ahead: %v", err)
		}
		w.mu.Lock()
		w.warmed = append(w.warmed, got.Job)
		w.mu.Unlock()
	}
}

// assume answers AssumeRole of STS for callers whose credentials exist, and records the credentials that it gives.
func (w *theft) assume(rw http.ResponseWriter, r *http.Request) {
	m := callerKey.FindStringSubmatch(r.Header.Get("Authorization"))
	role, session := r.FormValue("RoleArn"), r.FormValue("RoleSessionName")
	if m == nil || r.FormValue("Action") != "AssumeRole" {
		http.Error(rw, "not a signed AssumeRole", http.StatusBadRequest)
		return
	}
	if _, known := w.sts.Principal(m[1]); !known {
		http.Error(rw, "unknown credentials", http.StatusForbidden)
		return
	}
	k := w.sts.AssumeRole("aws", plane.Account, role[strings.LastIndexByte(role, '/')+1:], "AROA"+strings.Repeat("J", 17), session)
	w.exists(ofSession+session, k.SecretAccessKey)
	rw.Header().Set("Content-Type", "text/xml")
	fmt.Fprintf(rw, `<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials><AccessKeyId>%s</AccessKeyId><SecretAccessKey>%s</SecretAccessKey>`+
		`<SessionToken>%s</SessionToken><Expiration>%s</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>`,
		k.AccessKeyID, k.SecretAccessKey, k.SessionToken, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
}

// serve serves credentials as ECS and EC2 do. They are new for each request.
func (w *theft) serve(kind, role string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		k := w.sts.AssumeRole("aws", plane.Account, role, "AROA"+strings.Repeat("R", 17), "0123456789abcdef")
		w.exists(kind, k.SecretAccessKey)
		json.NewEncoder(rw).Encode(map[string]any{"RoleArn": role, "AccessKeyId": k.AccessKeyID, "SecretAccessKey": k.SecretAccessKey,
			"Token": k.SessionToken, "Expiration": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)})
	}
}

// collect gets the reports of the thief and of the other job.
func (w *theft) collect(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			for r := tar.NewReader(conn); ; {
				h, err := r.Next()
				if errors.Is(err, io.EOF) {
					err = nil
				}
				if err != nil || h == nil {
					conn.Close()
					w.reported <- err
					return
				}
				if h.Name == "waits" {
					w.victim <- conn
					return
				}
				b, err := io.ReadAll(r)
				if err != nil {
					conn.Close()
					w.reported <- err
					return
				}
				w.look(h.Name, b)
			}
		}()
	}
}

// network makes the network of a task: with the addresses at which ECS and EC2 serve credentials. credentials are those of the task,
// by path. It returns the network's name.
func (w *theft) network(credentials string, serve http.HandlerFunc) container.NetworkMode {
	w.t.Helper()
	c, err := w.docker.ContainerCreate(w.t.Context(), client.ContainerCreateOptions{Config: &container.Config{Image: w.pause}, HostConfig: &container.HostConfig{NetworkMode: "none"}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		w.docker.ContainerRemove(context.Background(), c.ID, client.ContainerRemoveOptions{Force: true})
	})
	if _, err := w.docker.ContainerStart(w.t.Context(), c.ID, client.ContainerStartOptions{}); err != nil {
		w.t.Fatal(err)
	}
	seen, err := w.docker.ContainerInspect(w.t.Context(), c.ID, client.ContainerInspectOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	ecs := http.NewServeMux()
	ecs.HandleFunc("GET "+credentials, serve)
	ecs.HandleFunc("GET /v2/metadata", func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, `{"Cluster":"default","Containers":[]}`) })
	ec2 := http.NewServeMux()
	ec2.HandleFunc("PUT /latest/api/token", func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, "token-of-the-metadata-service") })
	ec2.HandleFunc("GET /latest/meta-data/iam/security-credentials/{$}", func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, "node") })
	ec2.HandleFunc("GET /latest/meta-data/iam/security-credentials/node", w.serve(ofMachine, "node"))
	err = inNetwork(seen.Container.State.Pid, func() error {
		if err := addAddress("lo:1", "169.254.170.2"); err != nil {
			return err
		}
		if err := w.listen("169.254.170.2:80", func(l net.Listener) { http.Serve(l, ecs) }); err != nil {
			return err
		}
		if w.row.ec2 {
			if err := addAddress("lo:2", "169.254.169.254"); err != nil {
				return err
			}
			if err := w.listen("169.254.169.254:80", func(l net.Listener) { http.Serve(l, ec2) }); err != nil {
				return err
			}
		}
		if w.row.leaks {
			if err := w.leaks(); err != nil {
				return err
			}
		}
		for _, port := range w.ports {
			if err := w.listen(port, func(l net.Listener) { relay(l, port) }); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return container.NetworkMode("container:" + c.ID)
}

// leaks serves secrets in the network of the calling thread.
func (w *theft) leaks() error {
	w.t.Helper()
	err := errors.Join(w.leakAt("tcp", ":0", atBothVersions), w.leakAt("unix", "@leak", atAbstract))
	if w.sockets != "" {
		return err // a file has one listener in all networks
	}
	w.sockets, _ = os.MkdirTemp("", "leak") // t.TempDir is too long for a socket
	w.t.Cleanup(func() { os.RemoveAll(w.sockets) })
	file := filepath.Join(w.sockets, "socket")
	return errors.Join(err, w.leakAt("unix", file, atSocketFile), os.Chmod(file, 0o777), os.Chmod(w.sockets, 0o755))
}

// leakAt serves a secret at an address.
func (w *theft) leakAt(network, address, kind string) error {
	secret := rand.Text()
	w.exists(kind, secret)
	l, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	w.t.Cleanup(func() { l.Close() })
	go http.Serve(l, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, secret) }))
	return nil
}

// listen serves an address in the network of the calling thread.
func (w *theft) listen(address string, serve func(net.Listener)) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	w.t.Cleanup(func() { l.Close() })
	go serve(l)
	return nil
}

// relay connects each connection to the address in the network of this process.
func relay(l net.Listener, to string) {
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer in.Close()
			out, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			defer out.Close()
			go func() {
				io.Copy(out, in)
				out.(*net.TCPConn).CloseWrite()
			}()
			io.Copy(in, out)
		}()
	}
}

// inNetwork calls f on a thread in the network of a process. Afterwards the thread is in its own network again. It must not end: the
// kernel would kill the servers that it has started for other tests.
func inNetwork(pid int, f func() error) (err error) {
	runtime.LockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer func() {
		if back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); back != nil {
			err = errors.Join(err, fmt.Errorf("leave the network of process %d: %w", pid, back)) // the thread stays locked to this test
		} else {
			runtime.UnlockOSThread()
		}
		own.Close()
	}()
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network of process %d: %w", pid, err)
	}
	return f()
}

// addAddress gives another address to the loopback interface of the calling thread's network.
func addAddress(alias, address string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq(alias)
	if err != nil {
		return err
	}
	if err := r.SetInet4Addr(net.ParseIP(address).To4()); err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFADDR, r); err != nil {
		return fmt.Errorf("add the address %s: %w", address, err)
	}
	return nil
}

// definition is the container of a task definition of the customer's stack.
type definition struct {
	User                   string
	ReadonlyRootFilesystem bool
	Privileged             bool
	LinuxParameters        struct{ InitProcessEnabled bool }
	MountPoints            []struct{ ContainerPath string }
}

// container returns a container as ECS makes it of the template's definition.
func (w *theft) container(id string, network container.NetworkMode, args, env []string) containerSpec {
	w.t.Helper()
	b, err := os.ReadFile("../infra/runnerstack/testdata/runner.template.json")
	if err != nil {
		w.t.Fatal(err)
	}
	var template struct {
		Resources map[string]struct {
			Properties struct{ ContainerDefinitions []json.RawMessage }
		}
	}
	if err := json.Unmarshal(b, &template); err != nil || len(template.Resources[id].Properties.ContainerDefinitions) != 1 {
		w.t.Fatalf("the template has no definition %s: %v", id, err)
	}
	var d definition
	if err := json.Unmarshal(template.Resources[id].Properties.ContainerDefinitions[0], &d); err != nil {
		w.t.Fatal(err)
	}
	starts := d.LinuxParameters.InitProcessEnabled || w.row.init
	c := containerSpec{Engine: w.engine, Config: container.Config{Image: w.image, User: d.User, Cmd: args, Env: env, Volumes: map[string]struct{}{}},
		Host: container.HostConfig{NetworkMode: network, ReadonlyRootfs: d.ReadonlyRootFilesystem, Privileged: d.Privileged, Init: &starts}}
	for _, m := range d.MountPoints {
		c.Config.Volumes[m.ContainerPath] = struct{}{}
	}
	if w.row.leaks {
		var secrets []string
		for _, kind := range []string{inPipe, inMemoryFile, inSocket} {
			secrets = append(secrets, rand.Text())
			w.exists(kind, secrets[len(secrets)-1])
		}
		c.Config.Entrypoint, c.Config.Env = []string{leaky}, append(slices.Clone(env), "THIEF_LEAKS="+strings.Join(secrets, ","))
		c.Host.Binds = []string{w.sockets + ":/leak"}
	}
	return c
}

// of returns the value of a variable.
func of(env []string, name string) string {
	for _, v := range slices.Backward(env) {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

const relativeURI = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"

// planted adds a variable with the address of the credentials of the task's role.
func (w *theft) planted(env []string) []string {
	if w.row.env != "" {
		env = append(env, w.row.env+"="+of(env, relativeURI))
	}
	return env
}

// startTasks starts an agent whose jobs have a task each. more are further variables of the agent.
func (w *theft) startTasks(more ...string) {
	w.t.Helper()
	cloud, env := tasksOf(w.t)
	cloud.Disk, cloud.Environ = "", []string{"AWS_ENDPOINT_URL_STS=" + w.stsURL}
	roles := 0
	cloud.Credentials = func(role string) []string {
		roles++
		return []string{fmt.Sprintf("%s=/v2/credentials/0d29c43e-9a1b-4d6e-8f5c-%012d", relativeURI, roles), "TASK_ROLE=" + role[strings.LastIndexByte(role, '/')+1:]}
	}
	cloud.Command = func(c ecstest.Container) *exec.Cmd {
		network := w.network(of(c.Env, relativeURI), w.serve(ofTask, of(c.Env, "TASK_ROLE")))
		return w.container("StepTask", network, c.Args, w.planted(c.Env)).command(w.t)
	}
	if w.row.env != "" {
		env[len(env)-1] = strings.Replace(env[len(env)-1], "task_definition:", "pass_env: ["+w.row.env+"], task_definition:", 1)
	}
	startAt(w.t, w.url, program.Build(w.t, "runner", "-tags=clusters"), w.t.TempDir(), slices.Concat(stackVariables(w.t, w.trusted(), "step-"), w.identity(), env, w.environ(), more)...)
}

func (w *theft) trusted() string { return base64.StdEncoding.EncodeToString(w.plane.PublicKey()) }

// identity has the settings by which an agent uses the role of its task.
func (w *theft) identity() []string {
	return []string{"FAIRLEAD_IDENTITY=aws-iam", "FAIRLEAD_RUNNER_ID=" + string(plane.RunnerID)}
}

// environ has the agent's credentials for a process that is no task.
func (w *theft) environ() []string {
	k := w.sts.AssumeRole("aws", plane.Account, plane.Role, "AROA"+strings.Repeat("R", 17), "0123456789abcdef")
	return []string{"AWS_REGION=eu-central-1", "AWS_ACCESS_KEY_ID=" + k.AccessKeyID, "AWS_SECRET_ACCESS_KEY=" + k.SecretAccessKey, "AWS_SESSION_TOKEN=" + k.SessionToken}
}

// startProcesses starts an agent in a task, whose jobs are processes beside it.
func (w *theft) startProcesses() {
	w.t.Helper()
	const uri = "/v2/credentials/0d29c43e-9a1b-4d6e-8f5c-3b7a1e2f4c60"
	isolation := "required"
	if w.row.off {
		isolation = "off" // Fargate's kernel has no Landlock
	}
	env := slices.Concat(stackVariables(w.t, w.trusted(), ""), w.identity(), []string{"FAIRLEAD_URL=" + w.url, "FAIRLEAD_ISOLATION=" + isolation, "FAIRLEAD_LOG_LEVEL=debug",
		file("{type: local, concurrency: 2}"), relativeURI + "=" + uri, "AWS_REGION=eu-central-1", "AWS_ENDPOINT_URL_STS=" + w.stsURL})
	cmd := w.container("RunnerTask", w.network(uri, w.serve(ofTask, plane.Role)), []string{"agent"}, w.planted(env)).command(w.t)
	out, done := &lockedBuffer{}, make(chan struct{})
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() { cmd.Wait(); close(done) }()
	w.t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		<-done
		if w.t.Failed() {
			w.t.Logf("the agent's log:\n%s", out)
		}
	})
}

// job runs the thief's program as the executable of a component, after its plan, and returns the job's ID.
func (w *theft) job(component string, env map[string]string) string {
	w.t.Helper()
	run := events.JobSpec{Plugin: "script", Operation: "plan", Install: "ins_1", InstallName: "acme", Component: component, Timeout: 120, Grace: 5, Env: env,
		Artifact: w.source(component)}
	planned := succeeded(w.t, w.plane.UntilFinished(w.plane.Queue(run)))
	run.Operation, run.Plan = "apply", &events.PlanRef{Job: fairlead.JobID(planned.ID), Digest: planned.Finish.Plan.Digest}
	return w.plane.Queue(run)
}

// source pushes the thief's program as the source of a component.
func (w *theft) source(component string) *events.ArtifactRef {
	w.t.Helper()
	b, err := os.ReadFile(program.Build(w.t, "test/thief"))
	if err != nil {
		w.t.Fatal(err)
	}
	return w.plane.PushOf(component, map[string]string{"run": string(b), "report": w.report})
}

// steal runs the thief's program. In a row with warm steps, it runs in a deployment, whose apply has a step that was started ahead.
func (w *theft) steal() {
	w.t.Helper()
	if !w.row.warm {
		w.thief = w.job("web", map[string]string{})
		succeeded(w.t, w.plane.UntilFinished(w.thief))
		return
	}
	d := w.plane.DeployOf("fairlead: v1\nname: shop\ncomponents:\n  web: {type: script, source: ./web}\n",
		map[string]string{"web": w.source("web").Digest}, wire.CreateDeploymentRequest{AutoApprove: true})
	w.plane.Until("the deployment's end", func() bool {
		d = w.plane.Deployment(d.ID)
		return slices.Contains([]string{"succeeded", "failed", "canceled"}, d.State)
	})
	if w.thief = d.Components[0].Job; d.State != "succeeded" {
		w.t.Fatalf("the deployment is %s: %+v", d.State, d)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.warmed, []string{w.thief}) {
		w.t.Fatalf("the jobs %q got steps that were started ahead, want the thief's job %s", w.warmed, w.thief)
	}
}

// leaky is a program in an image with a planted mistake, which starts the runner with open descriptors.
const leaky = "/usr/local/bin/leaky"

// runnerImages builds the runner's image as a release does, and loads it into the engine. In the second image, each user can read the
// runner's program. The third one also has the program leaky.
func runnerImages(t *testing.T, engine string) (image, readable, leaking string) {
	t.Helper()
	out := t.TempDir()
	cmd := exec.Command(program.Build(t, "infra/images/runner"), "-arch", runtime.GOARCH, "-version", "v0.0.0-test", "-tofu", tool(t), "-out", out)
	cmd.Dir = ".."
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the image: %v\n%s", err, b)
	}
	index, err := layout.ImageIndexFromPath(filepath.Join(out, "layout"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := index.IndexManifest()
	if err != nil || len(m.Manifests) != 1 {
		t.Fatalf("the layout has %+v, %v", m, err)
	}
	img, err := index.Image(m.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.WithHost(engine))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	load := func(img v1.Image, tag string) string {
		ref, err := name.NewTag("fairlead-test/runner:" + tag)
		if err != nil {
			t.Fatal(err)
		}
		r, w := io.Pipe()
		go func() { w.CloseWithError(tarball.Write(ref, img, w)) }()
		loaded, err := c.ImageLoad(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		defer loaded.Close()
		if b, err := io.ReadAll(loaded); err != nil || bytes.Contains(b, []byte(`"error"`)) {
			t.Fatalf("load the image: %v: %s", err, b)
		}
		return ref.String()
	}
	return load(img, "theft"), load(withProgram(t, img, filepath.Join(out, "fairlead-runner-"+runtime.GOARCH), "/usr/local/bin/fairlead-runner"), "theft-readable"),
		load(withProgram(t, img, program.Build(t, "test/thief"), leaky), "theft-leaking")
}

// withProgram returns the image with a program that each user can read.
func withProgram(t *testing.T, img v1.Image, file, path string) v1.Image {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	to := tar.NewWriter(&archive)
	if err := to.WriteHeader(&tar.Header{Name: strings.TrimPrefix(path, "/"), Mode: 0o755, Size: int64(len(b))}); err != nil {
		t.Fatal(err)
	}
	if _, err := to.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	planted, err := mutate.AppendLayers(img, layer)
	if err != nil {
		t.Fatal(err)
	}
	return planted
}

// A tool, as the user of the real image, reads every process, file, open descriptor and endpoint that it can reach. It finds the
// credentials of its own operation, and no other secret. The rows with a planted mistake find more, so the test can fail; a short run omits them.
func TestToolFindsOnlyItsOwnCredentials(t *testing.T) {
	shortrun.OneDayIn(t, 3, 0)
	t.Parallel()
	var server dockerd.Server
	t.Cleanup(server.Stop)
	engine := server.Host(t)
	image, readable, leaking := runnerImages(t, engine)
	pause := dockerd.Image(t, engine, "pause", map[string]string{"/pause": program.Build(t, "test/thief")}, "/pause")
	for name, r := range map[string]row{
		"a task of its own":                           {tasks: true, finds: []string{ownOperation}},
		"a task that was started ahead":               {tasks: true, warm: true, finds: []string{ownOperation}},
		"processes beside the agent":                  {finds: []string{ownOperation}},
		"processes on Fargate":                        {off: true, finds: []string{ownOperation, otherOperation}}, // docs/customer/permissions.md names it
		"planted: an init process":                    {tasks: true, init: true, finds: []string{ownOperation, ofTask, launchToken}},
		"planted: an init process of a warm task":     {tasks: true, warm: true, init: true, finds: []string{ownOperation, ofTask, warmToken}},
		"planted: an init process beside the agent":   {off: true, init: true, finds: []string{ownOperation, otherOperation, ofTask}},
		"planted: an address in a tool's environment": {tasks: true, env: "PLANTED", finds: []string{ownOperation, ofTask}},
		"planted: the machine's metadata service":     {tasks: true, ec2: true, finds: []string{ownOperation, ofMachine}},
		"planted: a readable program":                 {open: true, finds: []string{ownOperation, startingRunner}},
		"planted: listeners and open descriptors":     {tasks: true, leaks: true, finds: []string{ownOperation, atBothVersions, atAbstract, atSocketFile, inPipe, inMemoryFile, inSocket}},
	} {
		if testing.Short() && name != shortrun.OneOf(t, 0, "a task of its own", "a task that was started ahead", "processes beside the agent", "processes on Fargate")[0] {
			continue
		}
		t.Run(name, func(t *testing.T) {
			if !r.tasks && !r.off {
				landlockNeeded(t) // only processes with isolation use it
			}
			image := image
			switch {
			case r.open:
				image = readable
			case r.leaks:
				image = leaking
			}
			w := newTheft(t, engine, image, pause, r)
			if r.tasks {
				w.startTasks()
			} else {
				w.startProcesses()
			}
			other := w.job("seed", map[string]string{"THIEF_WAITS": "1"})
			var waits net.Conn
			w.plane.Until("the other job waits", func() bool {
				select {
				case waits = <-w.victim:
				default:
				}
				return waits != nil || w.plane.Job(other).Finish != nil
			})
			if waits == nil {
				t.Fatalf("the other job ended: %s", w.plane.Job(other).Log)
			}
			defer waits.Close()
			w.steal()
			if err := <-w.reported; err != nil {
				t.Fatal(err)
			}
			waits.Close()
			succeeded(t, w.plane.UntilFinished(other))
			w.check(r.finds)
		})
	}
}

// check compares what the thief found with what it can find in this world.
func (w *theft) check(finds []string) {
	w.t.Helper()
	w.secrets.mu.Lock()
	defer w.secrets.mu.Unlock()
	of := func(kind string) string {
		session, ok := strings.CutPrefix(kind, ofSession)
		switch {
		case !ok:
			return kind
		case session == w.thief:
			return ownOperation
		}
		return otherOperation
	}
	exist, found := map[string]bool{}, map[string]string{}
	for _, kind := range w.kinds {
		exist[of(kind)] = true
	}
	for kind, place := range w.found {
		found[of(kind)] = place
	}
	must := []string{ownOperation, otherOperation, ofTask, launchToken, leaseToken, stateToken, sessionToken}
	if w.row.warm {
		must = append(must, warmToken)
	}
	for _, kind := range must {
		if !exist[kind] {
			w.t.Errorf("the world has no %s, so the test cannot find one", kind)
		}
	}
	for kind, place := range found {
		if !slices.Contains(finds, kind) {
			w.t.Errorf("a tool finds %s in %s", kind, place)
		}
	}
	for _, kind := range finds {
		if found[kind] == "" {
			w.t.Errorf("the tool does not find %s", kind)
		}
	}
}

package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	llsyscall "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"github.com/moby/moby/api/types/container"
	dockerevents "github.com/moby/moby/api/types/events"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/executor/kubelettest"
	"github.com/fairlead/fairlead/runner/internal/installseed"
	"github.com/fairlead/fairlead/test/hostile/reach"
	"github.com/fairlead/fairlead/test/plane"
	"github.com/fairlead/fairlead/tools/dockerd"
	"github.com/fairlead/fairlead/tools/page"
	"github.com/fairlead/fairlead/tools/program"
	"github.com/fairlead/fairlead/tools/shortrun"
	"github.com/fairlead/fairlead/tools/testserver"
)

// hostilePlace is a column of the page: where the hostile tool runs.
type hostilePlace struct {
	name   string // of its file in testdata/isolation
	column string // of the page
	image  bool   // whether it needs a Docker Engine and the image of a release
	start  func(h *hostileWorld)
}

// hostilePlaces are the columns of the page, in its order.
func hostilePlaces() []hostilePlace {
	return []hostilePlace{
		{"process", "`process`, with Landlock", false, func(h *hostileWorld) { h.startProcesses(unprivileged, "required") }},
		{"process-root", "`process` as root, with Landlock", false, func(h *hostileWorld) { h.startProcesses(0, "required") }},
		{"process-off", "`process` without Landlock", false, func(h *hostileWorld) { h.startProcesses(unprivileged, "off") }},
		{"docker", "`docker`", true, (*hostileWorld).startContainers},
		{"kubernetes", "`kubernetes`", true, (*hostileWorld).startPods},
		{"ecs", "`ecs`", true, (*hostileWorld).startTasks},
	}
}

// hostileWorld is a control plane with an agent, whose jobs run in one place.
type hostileWorld struct {
	t       *testing.T
	engine  string // address of the Docker Engine; "": the place needs none
	image   string // of the runner, as a release has it
	pause   string // image of a program that holds a network
	plane   *plane.Plane
	targets reach.Targets
	maps    map[string]*corev1.ConfigMap // of the namespace of jobs, by name
	ports   []string                     // that a place with a network of its own reaches: host:port
	reports chan report
	ctx     context.Context // ends with the attack
	end     context.CancelFunc
}

// report is a message of a tool, and its connection.
type report struct {
	reach.Message
	conn net.Conn
}

// newHostileWorld makes what the tool may find on the machine. The agent is not started.
func newHostileWorld(t *testing.T, engine, image, pause string) *hostileWorld {
	t.Helper()
	h := &hostileWorld{t: t, engine: engine, image: image, pause: pause, reports: make(chan report, 8)}
	var end context.CancelFunc
	h.ctx, end = context.WithCancel(t.Context())
	t.Cleanup(end)
	h.end = end
	collector, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { collector.Close() })
	go h.listen(collector)
	h.plane = plane.New(t, plane.Options{})
	h.targets = reach.Targets{Report: collector.Addr().String(), Nonce: rand.Text(), Plane: h.plane.URL()}
	h.ports = []string{h.plane.Registry(), h.targets.Report}
	return h
}

// listen gets the messages of the tools.
func (h *hostileWorld) listen(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			line, err := bufio.NewReader(conn).ReadBytes('\n')
			var m reach.Message
			if err = errors.Join(err, json.Unmarshal(line, &m)); err != nil {
				conn.Close() // of a process that ended; the test waits for the message and fails
				return
			}
			h.reports <- report{m, conn}
		}()
	}
}

// next returns the next message. job is the job of the tool that sends it.
func (h *hostileWorld) next(job string) report {
	h.t.Helper()
	var got *report
	h.plane.Until("the message of the tool of "+job, func() bool {
		select {
		case s := <-h.reports:
			got = &s
		default:
		}
		return got != nil || h.plane.Job(job).Finish != nil || h.plane.Job(job).Died != nil
	})
	if got == nil {
		h.t.Fatalf("the job ended without a message: %+v\n%s", h.plane.Job(job).Died, h.plane.Job(job).Log)
	}
	h.t.Cleanup(func() { got.conn.Close() })
	return *got
}

// plant writes what an agent has of other installs into its data folder, and a file of its user elsewhere. An executor on this
// machine has all of it; the others have a disk of their own.
func (h *hostileWorld) plant(data string, uid int) {
	h.t.Helper()
	h.targets.Data = data
	home, err := os.MkdirTemp("/var/lib", "home") // by default, jobs may write below /tmp
	if err != nil {
		h.t.Skipf("SKIPPED: only root can make a home: %v", err)
	}
	h.t.Cleanup(func() { os.RemoveAll(home) })
	h.targets.UserFile, h.targets.Socket, h.targets.Tmp = filepath.Join(home, "notes"), filepath.Join(home, "socket"), filepath.Join(h.t.TempDir(), "planted")
	h.targets.Policy = filepath.Join(home, "policy.yaml")
	files := []string{h.targets.UserFile, h.targets.Tmp, filepath.Join(data, "ledger", "planted"), filepath.Join(data, "state", "ins_3", "db", "terraform.tfstate"), filepath.Join(data, "plans", "job_other", "plan"),
		filepath.Join(data, "plugin-cache", "planted"), filepath.Join(data, "tools", "planted"), filepath.Join(data, "artifacts", "planted")}
	for _, file := range files {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			h.t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("of others"), 0o600); err != nil {
			h.t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(data, installseed.File), []byte(rand.Text()+rand.Text()), 0o600); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(h.targets.Policy, []byte(freePolicy), 0o644); err != nil {
		h.t.Fatal(err)
	}
	l, err := net.Listen("unix", h.targets.Socket)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { l.Close() })
	for _, root := range []string{home, data, filepath.Dir(h.targets.Tmp)} {
		err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error { return errors.Join(err, os.Lchown(path, uid, uid)) })
		if err != nil {
			h.t.Fatal(err)
		}
	}
}

// freePolicy is a policy that restricts nothing.
const freePolicy = "version: 1\n"

// network gives a network that no other process has what a machine's network has: a loopback interface, the way to the addresses of
// this world, and a metadata service. pid is a process in it. Then it calls f in this network.
func (h *hostileWorld) network(pid int, f func() error) error {
	listen := func(address string, serve func(net.Listener)) error {
		l, err := net.Listen("tcp", address)
		if err == nil {
			h.t.Cleanup(func() { l.Close() })
			go serve(l)
		}
		return err
	}
	return inNetwork(pid, func() error {
		err := errors.Join(loopbackUp(), addAddress("lo:2", "169.254.169.254"))
		if err == nil {
			err = listen("169.254.169.254:80", func(l net.Listener) { http.Serve(l, http.NotFoundHandler()) }) // any answer counts
		}
		for _, port := range h.ports {
			if err == nil {
				err = listen(port, func(l net.Listener) { relay(l, port) })
			}
		}
		if err == nil {
			err = f()
		}
		return err
	})
}

// loopbackUp switches on the loopback interface of the calling thread's network.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
}

// startProcesses starts an agent as a user, in a network of its own, as on a machine of its own.
func (h *hostileWorld) startProcesses(uid uint32, isolation string) {
	h.t.Helper()
	if isolation == "required" {
		landlockNeeded(h.t)
		if abi, err := llsyscall.LandlockGetABIVersion(); err != nil || abi < 6 {
			h.t.Skipf("SKIPPED: the page shows what Landlock 6 refuses, and this kernel has version %d, %v", abi, err)
		}
	}
	dir, data := foldersOf(h.t, uid)
	h.plant(data, int(uid))
	h.targets.Status = "127.0.0.1:9480"
	holder := exec.Command(program.Build(h.t, "test/hostile")) // holds the network
	holder.Dir, holder.SysProcAttr = h.t.TempDir(), &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := holder.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		holder.Process.Kill()
		holder.Wait()
	})
	cmd := exec.Command(filepath.Join(dir, "runner"), "agent", "--url", h.plane.URL(), "--data", data, "--log-level", "debug")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0", "FAIRLEAD_PASS_ENV=GORACE", "FAIRLEAD_STATUS_ADDRESS=" + h.targets.Status,
		"FAIRLEAD_ENROLMENT_TOKEN=" + h.plane.EnrolmentToken(), "FAIRLEAD_TOFU=" + filepath.Join(dir, "tofu"), "FAIRLEAD_ISOLATION=" + isolation,
		"FAIRLEAD_SHARED_PROCESS=true", // without it, the agent refuses the other job
		file("{type: local}, policy: 'file:" + h.targets.Policy + "'")}
	if err := h.network(holder.Process.Pid, func() error {
		startCommand(h.t, cmd, data)
		return nil
	}); err != nil {
		h.t.Fatal(err)
	}
}

// startContainers starts an agent on this machine whose jobs are containers, each in a network of its own. Docker's own network
// cannot run here: it needs a bridge.
func (h *hostileWorld) startContainers() {
	h.t.Helper()
	data := h.t.TempDir()
	h.plant(data, 0)
	h.targets.Socket = strings.TrimPrefix(h.engine, "unix://")
	var random [2]byte
	rand.Read(random[:])
	h.targets.Status = fmt.Sprintf("127.1.%d.%d:9480", random[0], random[1]) // an address that no other process takes meanwhile
	c, err := client.New(client.WithHost(h.engine))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { c.Close() })
	image := dockerd.Image(h.t, h.engine, "hostile-"+strings.ToLower(h.targets.Nonce), map[string]string{"/runner": program.Build(h.t, "runner"), "/bin/tool": tool(h.t)}, "/runner")
	made, err := c.ImageInspect(h.ctx, image)
	if err != nil {
		h.t.Fatal(err)
	}
	image = made.ID // with a policy, an image needs a digest or an ID
	folder := h.t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "policy.yaml"), []byte(freePolicy), 0o644); err != nil {
		h.t.Fatal(err)
	}
	h.targets.Policy = "/policy/policy.yaml"
	started := c.Events(h.ctx, client.EventsListOptions{Filters: client.Filters{}.Add("type", string(dockerevents.ContainerEventType)).Add("event", string(dockerevents.ActionStart)).Add("image", image)})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for {
			select {
			case m := <-started.Messages:
				seen, err := c.ContainerInspect(h.ctx, m.Actor.ID, client.ContainerInspectOptions{})
				if err == nil && seen.Container.State.Pid > 0 {
					err = h.network(seen.Container.State.Pid, func() error { return nil })
				}
				if err != nil && h.ctx.Err() == nil {
					h.t.Errorf("the network of a container: %v", err)
				}
			case <-started.Err: // the attack is over
				return
			}
		}
	}()
	h.t.Cleanup(func() { h.end(); <-watched })
	agentFile := strings.Replace(containersOf(h.engine, image, "volumes: ['"+folder+":/policy:ro']"), "network: host", "network: none", 1)
	agentFile = strings.TrimSuffix(agentFile, "}") + ", policy: 'file:" + h.targets.Policy + "'}"
	startAt(h.t, h.plane.URL(), "", data, "FAIRLEAD_ENROLMENT_TOKEN="+h.plane.EnrolmentToken(), "FAIRLEAD_STATUS_ADDRESS="+h.targets.Status, "FAIRLEAD_TOFU=/bin/tool", agentFile)
}

// startTasks starts an agent whose jobs are tasks: containers of the runner's image, with the settings of the customer's stack.
func (h *hostileWorld) startTasks() {
	h.t.Helper()
	h.plant(h.t.TempDir(), 0)
	h.targets.Status, h.targets.Policy = "127.0.0.1:9480", "" // in the stack, the policy is a parameter of SSM
	w := newTheft(h.t, h.engine, h.image, h.pause, row{tasks: true})
	h.plane, h.targets.Plane = w.plane, w.url
	w.ports = append(w.ports, h.targets.Report)
	w.startTasks("FAIRLEAD_TOFU=" + toolInImage)
}

// toolInImage is the path of OpenTofu in the runner's image.
const toolInImage = "/usr/local/bin/tofu"

// startPods starts an agent whose jobs are pods of a real API server, with the service accounts of the chart, which keeps states in the
// namespace of jobs. The simulated node runs the container of each pod in a Docker Engine, with the settings of the pod.
func (h *hostileWorld) startPods() {
	h.t.Helper()
	h.plant(h.t.TempDir(), 0)
	h.targets.Status = "127.0.0.1:9480"
	n := newNamespace(h.t)
	n.grantByChart()
	const account = "acme-fairlead-runner-jobs"
	testserver.Until(h.t, "the API server grants the chart's roles", func() bool {
		review, err := n.admin.AuthorizationV1().SubjectAccessReviews().Create(h.ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + n.name + ":" + account + "-deploy", ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: n.name, Resource: "secrets", Verb: "get"}}}, metav1.CreateOptions{})
		return err == nil && review.Status.Allowed
	})
	api, err := clientcmd.BuildConfigFromFlags("", cluster.Kubeconfig(h.t))
	if err != nil {
		h.t.Fatal(err)
	}
	h.targets.API, h.targets.Secrets = api.Host, "/api/v1/namespaces/"+n.name+"/secrets"
	h.ports = append(h.ports, strings.TrimPrefix(api.Host, "https://"))
	policy := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "acme-policy"}, Data: map[string]string{"policy.yaml": freePolicy}}
	if _, err := n.admin.CoreV1().ConfigMaps(n.name).Create(h.ctx, policy, metav1.CreateOptions{}); err != nil {
		h.t.Fatal(err)
	}
	h.targets.Policy = runnerspec.PolicyFolder + "/policy.yaml"
	h.maps = map[string]*corev1.ConfigMap{policy.Name: policy}
	image := "registry.example/fairlead/runner@sha256:" + strings.Repeat("0", 64)
	kubelettest.Start(h.t, n.admin, n.name, kubelettest.Options{Image: image, Command: h.pod})
	startProgram(h.t, h.plane, program.Build(h.t, "runner", "-tags=clusters"), "", "FAIRLEAD_TOFU="+toolInImage,
		file(fmt.Sprintf("{type: kubernetes, job: {kubeconfig: '%s', namespace: %s, image: '%s', service_account: %s, service_accounts: {read_only: %[4]s-read-only, deploy: %[4]s-deploy, provision: %[4]s-provision, deprovision: %[4]s-deprovision}}}, policy: 'kubernetes:acme-policy/policy.yaml'",
			cluster.Kubeconfig(h.t), n.name, image, account)))
}

// pod returns the command that runs a pod's container as a node does.
func (h *hostileWorld) pod(c kubelettest.Container) *exec.Cmd {
	h.t.Helper()
	of, own := c.Pod.Spec, c.Pod.Spec.Containers[0]
	s := containerSpec{Engine: h.engine, Config: container.Config{Image: h.image, Cmd: c.Args, Env: c.Env, Volumes: map[string]struct{}{}},
		Host: container.HostConfig{NetworkMode: h.ownNetwork()}}
	if p := of.SecurityContext; p != nil && p.RunAsUser != nil && p.RunAsGroup != nil && p.FSGroup != nil {
		s.Config.User, s.Host.GroupAdd = fmt.Sprintf("%d:%d", *p.RunAsUser, *p.RunAsGroup), []string{fmt.Sprint(*p.FSGroup)}
	}
	if p := own.SecurityContext; p != nil {
		s.Host.ReadonlyRootfs, s.Host.Privileged = p.ReadOnlyRootFilesystem != nil && *p.ReadOnlyRootFilesystem, p.Privileged != nil && *p.Privileged
		if p.AllowPrivilegeEscalation != nil && !*p.AllowPrivilegeEscalation {
			s.Host.SecurityOpt = []string{"no-new-privileges"}
		}
		for _, drop := range p.Capabilities.Drop {
			s.Host.CapDrop = append(s.Host.CapDrop, string(drop))
		}
	}
	for _, m := range own.VolumeMounts {
		from := slices.IndexFunc(of.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name && v.ConfigMap != nil })
		if from >= 0 {
			s.Host.Binds = append(s.Host.Binds, h.mounted(h.maps[of.Volumes[from].ConfigMap.Name])+":"+m.MountPath+":ro")
			continue
		}
		switch m.MountPath {
		case "/var/run/secrets/kubernetes.io/serviceaccount":
			folder := h.t.TempDir()
			if err := errors.Join(os.WriteFile(filepath.Join(folder, "token"), []byte(c.Token), 0o644), os.Chmod(folder, 0o755), os.Chmod(filepath.Dir(folder), 0o755)); err != nil {
				h.t.Error(err)
			}
			s.Host.Binds = append(s.Host.Binds, folder+":"+m.MountPath+":ro")
		default:
			s.Config.Volumes[m.MountPath] = struct{}{}
		}
	}
	return s.command(h.t)
}

// mounted returns a folder with the files of a ConfigMap, as a node mounts it.
func (h *hostileWorld) mounted(m *corev1.ConfigMap) string {
	h.t.Helper()
	folder := h.t.TempDir()
	err := errors.Join(os.Chmod(folder, 0o755), os.Chmod(filepath.Dir(folder), 0o755))
	for name, text := range m.Data {
		err = errors.Join(err, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644))
	}
	if err != nil {
		h.t.Error(err)
	}
	return folder
}

// ownNetwork makes the network of a pod, which one process holds.
func (h *hostileWorld) ownNetwork() container.NetworkMode {
	h.t.Helper()
	c, err := client.New(client.WithHost(h.engine))
	if err != nil {
		h.t.Error(err)
		return "none"
	}
	h.t.Cleanup(func() { c.Close() })
	made, err := c.ContainerCreate(h.ctx, client.ContainerCreateOptions{Config: &container.Config{Image: h.pause}, HostConfig: &container.HostConfig{NetworkMode: "none"}})
	if err == nil {
		h.t.Cleanup(func() {
			c.ContainerRemove(context.Background(), made.ID, client.ContainerRemoveOptions{Force: true})
		})
		_, err = c.ContainerStart(h.ctx, made.ID, client.ContainerStartOptions{})
	}
	var seen client.ContainerInspectResult
	if err == nil {
		seen, err = c.ContainerInspect(h.ctx, made.ID, client.ContainerInspectOptions{})
	}
	if err == nil {
		err = h.network(seen.Container.State.Pid, func() error { return nil })
	}
	if err != nil {
		h.t.Errorf("the network of a pod: %v", err)
		return "none"
	}
	return container.NetworkMode("container:" + made.ID)
}

// victim starts the job of another install, whose tool waits.
func (h *hostileWorld) victim() (job string, waits net.Conn) {
	h.t.Helper()
	ref := h.push("other", map[string]string{"main.tf": fmt.Sprintf(`
resource "terraform_data" "it" {
  provisioner "local-exec" {
    interpreter = ["${path.module}/hostile"]
    command     = "victim-%s"
  }
}
`, h.targets.Nonce)})
	sp := events.JobSpec{Plugin: "terraform", Operation: "plan", Install: "ins_2", InstallName: "globex", Component: "other", Timeout: 120, Grace: 5, Artifact: ref,
		State: &events.StateRef{Storage: "http", Key: "ins_2/other", Path: "/runner/v1/state/ins_2/other"}}
	planned := succeeded(h.t, h.plane.UntilFinished(h.plane.Queue(sp)))
	sp.Operation, sp.Plan = "apply", &events.PlanRef{Job: fairlead.JobID(planned.ID), Digest: planned.Finish.Plan.Digest}
	job = h.plane.Queue(sp)
	m := h.next(job)
	if m.Victim == nil {
		h.t.Fatalf("the tool of the other job sent %+v", m.Message)
	}
	h.targets.Victim, h.targets.Attempt = *m.Victim, job+"-1"
	return job, m.conn
}

// push pushes the hostile program and its targets as the source of a component.
func (h *hostileWorld) push(component string, files map[string]string) *events.ArtifactRef {
	h.t.Helper()
	b, err := os.ReadFile(program.Build(h.t, "test/hostile"))
	if err != nil {
		h.t.Fatal(err)
	}
	targets, err := json.Marshal(h.targets)
	if err != nil {
		h.t.Fatal(err)
	}
	name := "run"
	if files["main.tf"] != "" {
		name = "hostile"
	}
	all := map[string]string{name: string(b), "targets.json": string(targets)}
	maps.Copy(all, files)
	return h.plane.PushOf(component, all)
}

// attack runs the hostile tool, and returns what it reached, and what refused the rest.
func (h *hostileWorld) attack() (reached []reach.Capability, refused map[reach.Capability]string) {
	h.t.Helper()
	sp := events.JobSpec{Plugin: "script", Operation: "plan", Install: "ins_1", InstallName: "acme", Component: "web", Timeout: 120, Grace: 5, Artifact: h.push("web", nil)}
	planned := succeeded(h.t, h.plane.UntilFinished(h.plane.Queue(sp)))
	apply := sp
	apply.Operation, apply.Plan = "apply", &events.PlanRef{Job: fairlead.JobID(planned.ID), Digest: planned.Finish.Plan.Digest}
	job := h.plane.Queue(apply)
	var result, daemon *report
	for result == nil || daemon == nil {
		switch m := h.next(job); {
		case m.Daemon:
			daemon = &m
		case m.Tried != nil:
			result = &m
		default:
			h.t.Fatalf("the hostile tool sent %+v", m.Message)
		}
	}
	if _, err := io.WriteString(result.conn, "go on\n"); err != nil {
		h.t.Fatal(err)
	}
	succeeded(h.t, h.plane.UntilFinished(job))
	succeeded(h.t, h.plane.UntilFinished(h.plane.Queue(sp))) // the next job of the component starts only after all processes have ended
	refused = map[reach.Capability]string{}
	for _, row := range reach.Table() {
		why, tried := result.Tried[string(row.Capability)]
		if !tried {
			h.t.Errorf("the tool did not try %s", row.Capability)
		}
		delete(result.Tried, string(row.Capability))
		if row.Capability == reach.OutliveJob {
			why = "its connection has ended"
			daemon.conn.SetReadDeadline(time.Now().Add(5 * time.Second))
			if _, err := daemon.conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
				why = ""
			}
		}
		if why == "" {
			reached = append(reached, row.Capability)
		} else {
			refused[row.Capability] = why
		}
	}
	for c := range result.Tried {
		h.t.Errorf("the tool tried %s, which the table does not have", c)
	}
	return reached, refused
}

// What a hostile tool reaches in each place is what the page shows: no more, which would be a hole, and no less, which would be a page
// that is not true. The tool runs alone, and beside the job of another install. What it reaches of the agent and of its own step
// must not depend on the other job.
func TestHostileToolReachesWhatThePageShows(t *testing.T) {
	t.Parallel()
	var server dockerd.Server
	t.Cleanup(server.Stop)
	today := shortrun.OneOf(t, 0, "docker", "kubernetes", "ecs")
	for _, p := range hostilePlaces() {
		if p.image && !slices.Contains(today, p.name) {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			engine, image, pause := "", "", ""
			if p.image {
				engine = server.Host(t)
				image, _, _ = runnerImages(t, engine)
				pause = dockerd.Image(t, engine, "pause", map[string]string{"/pause": program.Build(t, "test/hostile")}, "/pause")
			}
			var own, reached []reach.Capability
			var refused map[reach.Capability]string
			t.Run("alone", func(t *testing.T) {
				h := newHostileWorld(t, engine, image, pause)
				p.start(h)
				own, _ = h.attack()
			})
			t.Run("beside another job", func(t *testing.T) {
				h := newHostileWorld(t, engine, image, pause)
				p.start(h)
				other, waits := h.victim()
				reached, refused = h.attack()
				waits.Close()
				succeeded(t, h.plane.UntilFinished(other))
			})
			if t.Failed() {
				return
			}
			for c, why := range refused {
				t.Logf("%s: %s", c, why)
			}
			of := func(all []reach.Capability) (own []reach.Capability) {
				for _, row := range reach.Table() {
					if !row.Other && slices.Contains(all, row.Capability) {
						own = append(own, row.Capability)
					}
				}
				return own
			}
			if !slices.Equal(own, of(reached)) {
				t.Errorf("alone the tool reaches %q, beside another job %q", own, of(reached))
			}
			holdReached(t, p.name, reached)
		})
	}
}

// holdReached compares what a tool reached with the file of its place.
func holdReached(t *testing.T, place string, reached []reach.Capability) {
	t.Helper()
	var text strings.Builder
	for _, c := range reached {
		fmt.Fprintln(&text, c)
	}
	file := filepath.Join("testdata", "isolation", place+".txt")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text.String()), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	shown := reachedAt(t, place)
	for _, row := range reach.Table() {
		is, want := slices.Contains(reached, row.Capability), shown[row.Capability]
		switch {
		case is && !want:
			t.Errorf("a tool can %s %s, and the page does not show it", row.Verb, row.What)
		case want && !is && !(row.Traces && yama()):
			t.Errorf("the page shows that a tool can %s %s, and it cannot", row.Verb, row.What)
		}
	}
}

// yama reports whether this kernel refuses the trace of processes that are no descendants.
func yama() bool {
	b, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	return err == nil && strings.TrimSpace(string(b)) != "0"
}

// reachedAt reads the file of a place.
func reachedAt(t *testing.T, place string) map[reach.Capability]bool {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "isolation", place+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	reached := map[reach.Capability]bool{}
	for _, c := range strings.Fields(string(b)) {
		reached[reach.Capability(c)] = true
	}
	return reached
}

// The page shows the files that TestHostileToolReachesWhatThePageShows compares.
func TestPageShowsWhatAToolReaches(t *testing.T) {
	var out strings.Builder
	out.WriteString("| a hostile tool can")
	for _, p := range hostilePlaces() {
		out.WriteString(" | " + p.column)
	}
	out.WriteString(" |\n|---" + strings.Repeat("|---", len(hostilePlaces())) + "|\n")
	known := map[reach.Capability]bool{}
	for _, row := range reach.Table() {
		known[row.Capability] = true
		fmt.Fprintf(&out, "| %s %s", row.Verb, row.What)
		for _, p := range hostilePlaces() {
			cell := "no"
			if reachedAt(t, p.name)[row.Capability] {
				cell = "**yes**"
			}
			out.WriteString(" | " + cell)
		}
		out.WriteString(" |\n")
	}
	for _, p := range hostilePlaces() {
		for c := range reachedAt(t, p.name) {
			if !known[c] {
				t.Errorf("the file of %s has %s, which the tool does not try", p.name, c)
			}
		}
	}
	page.Hold(t, "docs/reference/isolation.md", "reached", strings.TrimSpace(out.String()))
}

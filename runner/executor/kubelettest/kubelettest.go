// Package kubelettest simulates a node for a Kubernetes cluster without nodes: it
// runs the containers of pods as processes on the test's machine.
package kubelettest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/runner/proctree"
)

// Kubelet simulates a node and the scheduler. It binds each pod of its namespace
// to itself and runs the command of the pod's container as a process. It follows
// the protocol of a kubelet: status reports, SIGTERM and grace period at deletion,
// the memory limit, readiness probes, and the log over a connection of the API
// server. It does not isolate containers: it ignores securityContext, which only
// the API server checks.
type Kubelet struct {
	t         testing.TB
	c         kubernetes.Interface
	namespace string
	node      string
	o         Options
	logs      string // folder

	ctx    context.Context
	stop   context.CancelFunc
	done   sync.WaitGroup
	server *httptest.Server

	mu   sync.Mutex
	runs map[string]*container // by the pod's UID
}

// Options of Start.
type Options struct {
	Image   string // an image that can be pulled
	Program string // the program of this image
	// Others are further images that can be pulled, with the variables that each gives to its
	// containers. They have no program, so a container needs a command.
	Others map[string][]string
	// Environ has variables that each container gets in addition to those of its pod, as an image
	// gives them.
	Environ []string
	// Cluster is the configuration of a client of the API server. With it, pods get
	// their volumes and a kubeconfig of their service account. nil: pods get neither
	// volumes nor a kubeconfig.
	Cluster *rest.Config
	// Region makes the node one of EKS in this region: a pod whose service account names a role of AWS gets
	// a token for STS, and the variables by which AWS's clients find role and token. On EKS, a webhook adds
	// them to the pod. "": the node is not on EKS.
	Region string
	// Command returns the command that runs the container of a pod, until its end. With it, nothing in the pod is replaced: the
	// command must give the container its volumes. nil: the container is a process of the program on this machine, which isolates
	// nothing.
	Command func(c Container) *exec.Cmd
}

// Container is the container of a pod that Options.Command runs.
type Container struct {
	Pod       *corev1.Pod
	Args, Env []string
	Token     string // of the pod's service account
}

type container struct {
	cmd   *exec.Cmd
	mark  string
	log   string
	ended chan struct{} // closed when all its processes have ended
	oom   bool
	term  sync.Once
}

// Start starts a node for the pods of one namespace, until the test ends.
func Start(t testing.TB, c kubernetes.Interface, namespace string, o Options) *Kubelet {
	k := &Kubelet{t: t, c: c, namespace: namespace, node: "node-" + namespace, o: o, logs: t.TempDir(), runs: map[string]*container{}}
	k.ctx, k.stop = context.WithCancel(context.Background())
	k.server = httptest.NewTLSServer(http.HandlerFunc(k.serveLog))
	_, port, err := net.SplitHostPort(k.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	node, err := c.CoreV1().Nodes().Create(k.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: k.node}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status = corev1.NodeStatus{
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(n)}},
		Capacity:        corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110")},
	}
	if _, err := c.CoreV1().Nodes().UpdateStatus(k.ctx, node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	k.done.Go(k.loop)
	t.Cleanup(func() {
		k.stop()
		k.done.Wait()
		k.server.Close()
	})
	return k
}

// loop synchronizes all pods every 50 ms, because there are few pods.
func (k *Kubelet) loop() {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		pods, err := k.c.CoreV1().Pods(k.namespace).List(k.ctx, metav1.ListOptions{})
		if err == nil {
			for i := range pods.Items {
				if err := k.sync(&pods.Items[i]); err != nil && k.ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
					k.t.Logf("kubelet: pod %s: %v", pods.Items[i].Name, err)
				}
			}
		}
		select {
		case <-k.ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (k *Kubelet) run(p *corev1.Pod) *container {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.runs[string(p.UID)]
}

func (k *Kubelet) sync(p *corev1.Pod) error {
	r := k.run(p)
	switch {
	case p.DeletionTimestamp != nil && r == nil:
		return k.forget(p)
	case p.DeletionTimestamp != nil:
		return k.end(p, r)
	case p.Spec.NodeName == "":
		return k.c.CoreV1().Pods(k.namespace).Bind(k.ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace},
			Target: corev1.ObjectReference{Kind: "Node", Name: k.node}}, metav1.CreateOptions{})
	case r == nil && p.Status.Phase == corev1.PodPending:
		return k.start(p)
	}
	return nil
}

// forget deletes a pod whose processes have all ended.
func (k *Kubelet) forget(p *corev1.Pod) error {
	now := int64(0)
	return k.c.CoreV1().Pods(k.namespace).Delete(k.ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &p.UID}})
}

// end sends SIGTERM once, and SIGKILL after the grace period. A second deletion can
// shorten the grace period.
func (k *Kubelet) end(p *corev1.Pod, r *container) error {
	select {
	case <-r.ended:
		if p.Status.Phase == corev1.PodRunning {
			return nil // watch reports its end soon
		}
		return k.forget(p)
	default:
	}
	r.term.Do(func() { r.cmd.Process.Signal(syscall.SIGTERM) })
	if time.Now().After(p.DeletionTimestamp.Time) {
		r.cmd.Process.Kill()
	}
	return nil
}

func (k *Kubelet) waiting(p *corev1.Pod, reason, message string) error {
	return k.report(p, corev1.PodPending, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}})
}

func (k *Kubelet) report(p *corev1.Pod, phase corev1.PodPhase, state corev1.ContainerState) error {
	for {
		p.Status.Phase = phase
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: p.Spec.Containers[0].Name, Image: p.Spec.Containers[0].Image, State: state}}
		_, err := k.c.CoreV1().Pods(k.namespace).UpdateStatus(context.WithoutCancel(k.ctx), p, metav1.UpdateOptions{})
		if !apierrors.IsConflict(err) {
			return err
		}
		if p, err = k.c.CoreV1().Pods(k.namespace).Get(context.WithoutCancel(k.ctx), p.Name, metav1.GetOptions{}); err != nil {
			return err
		}
	}
}

// has reports whether the image can be pulled.
func (k *Kubelet) has(image string) bool {
	_, other := k.o.Others[image]
	return other || image == k.o.Image
}

// initialize runs the init containers, one after the other. ready is false if the pod does not start.
func (k *Kubelet) initialize(p *corev1.Pod, moved *strings.Replacer) (ready bool, err error) {
	for _, spec := range p.Spec.InitContainers {
		state := corev1.ContainerState{}
		if !k.has(spec.Image) {
			state.Waiting = &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such host"}
			return false, k.reportInit(p, spec, corev1.PodPending, state)
		}
		cmd := exec.CommandContext(k.ctx, k.o.Program)
		for _, arg := range spec.Args {
			cmd.Args = append(cmd.Args, moved.Replace(arg))
		}
		cmd.Env = []string{}
		if output, err := cmd.CombinedOutput(); err != nil {
			state.Terminated = &corev1.ContainerStateTerminated{ExitCode: int32(cmd.ProcessState.ExitCode()), Reason: "Error", Message: string(output)}
			return false, k.reportInit(p, spec, corev1.PodFailed, state)
		}
	}
	return true, nil
}

func (k *Kubelet) reportInit(p *corev1.Pod, spec corev1.Container, phase corev1.PodPhase, state corev1.ContainerState) error {
	p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: spec.Name, Image: spec.Image, State: state}}
	return k.report(p, phase, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}})
}

func (k *Kubelet) start(p *corev1.Pod) error {
	spec := p.Spec.Containers[0]
	if !k.has(spec.Image) {
		if len(p.Status.ContainerStatuses) == 0 {
			return k.waiting(p, "ErrImagePull", "no such host")
		}
		return k.waiting(p, "ImagePullBackOff", "Back-off pulling image "+spec.Image)
	}
	mark := "TEST_POD=" + string(p.UID)
	r := &container{mark: mark, log: filepath.Join(k.logs, p.Name), ended: make(chan struct{})}
	moved, err := k.volumes(p)
	if err != nil {
		return k.waiting(p, "CreateContainerConfigError", err.Error())
	}
	if ready, err := k.initialize(p, moved); err != nil || !ready {
		return err
	}
	command := k.o.Program
	if len(spec.Command) > 0 {
		command = moved.Replace(spec.Command[0])
	}
	r.cmd = exec.Command(command)
	for _, arg := range spec.Args {
		r.cmd.Args = append(r.cmd.Args, moved.Replace(arg))
	}
	r.cmd.Env = slices.Concat([]string{mark}, k.o.Environ, k.o.Others[spec.Image])
	for _, v := range spec.Env {
		value := strings.ReplaceAll(v.Value, "$$(", "$(")
		if v.ValueFrom != nil {
			secret, err := k.secret(v.ValueFrom.SecretKeyRef)
			if err != nil {
				return k.waiting(p, "CreateContainerConfigError", err.Error())
			}
			if secret == nil {
				continue
			}
			value = string(secret)
		}
		r.cmd.Env = append(r.cmd.Env, v.Name+"="+moved.Replace(value))
	}
	identity, err := k.identity(p)
	if err != nil {
		return k.waiting(p, "CreateContainerConfigError", err.Error())
	}
	r.cmd.Env = append(r.cmd.Env, identity...)
	if file := k.kubeconfigOf(p); exists(file) { // also if the agent gave its own to the pod
		r.cmd.Env = append(r.cmd.Env, "KUBECONFIG="+file)
	}
	if k.o.Command != nil {
		token, err := k.token(p, nil, nil)
		if err != nil {
			return k.waiting(p, "CreateContainerConfigError", err.Error())
		}
		r.cmd = k.o.Command(Container{Pod: p.DeepCopy(), Args: spec.Args, Env: r.cmd.Env, Token: token})
		r.cmd.Env = append(r.cmd.Env, mark)
	}
	out, err := os.Create(r.log)
	if err != nil {
		return err
	}
	defer out.Close()
	r.cmd.Stdout, r.cmd.Stderr = out, out
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := r.cmd.Start(); err != nil {
		return k.waiting(p, "RunContainerError", err.Error())
	}
	k.mu.Lock()
	k.runs[string(p.UID)] = r
	k.mu.Unlock()
	limit := spec.Resources.Limits.Memory().Value()
	own := p.DeepCopy() // report below changes p while watch runs
	k.done.Go(func() { k.watch(own, r, limit) })
	if probe := spec.ReadinessProbe; probe != nil && probe.HTTPGet != nil {
		k.done.Go(func() { k.probe(own.Name, own.UID, r, probeURL(spec, probe.HTTPGet)) })
	}
	return k.report(p, corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}})
}

// secret returns a key of a Secret; nil if it does not exist and the reference is optional.
func (k *Kubelet) secret(ref *corev1.SecretKeySelector) ([]byte, error) {
	s, err := k.c.CoreV1().Secrets(k.namespace).Get(k.ctx, ref.Name, metav1.GetOptions{})
	optional := ref.Optional != nil && *ref.Optional
	if apierrors.IsNotFound(err) && optional {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if value, ok := s.Data[ref.Key]; ok || optional {
		return value, nil
	}
	return nil, fmt.Errorf("couldn't find key %s in Secret %s/%s", ref.Key, k.namespace, ref.Name)
}

// watch waits for the end of a container, kills its leftover processes and
// reports the end.
func (k *Kubelet) watch(p *corev1.Pod, r *container, limit int64) {
	over := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-k.ctx.Done():
				r.cmd.Process.Kill()
				return
			case <-tick.C:
			}
			if limit > 0 && resident(r.cmd.Process.Pid) > limit {
				r.oom = true
				r.cmd.Process.Kill()
				return
			}
		}
	})
	err := r.cmd.Wait()
	close(over)
	watching.Wait()
	proctree.KillAll(context.WithoutCancel(k.ctx), 0, r.mark)
	code, reason := 0, "Completed"
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code, reason = exit.ExitCode(), "Error"
		if ws := exit.Sys().(syscall.WaitStatus); ws.Signaled() {
			code = 128 + int(ws.Signal())
		}
	}
	if r.oom {
		reason = "OOMKilled"
	}
	phase := corev1.PodSucceeded
	if code != 0 {
		phase = corev1.PodFailed
	}
	if cur, err := k.c.CoreV1().Pods(k.namespace).Get(context.WithoutCancel(k.ctx), p.Name, metav1.GetOptions{}); err == nil && cur.UID == p.UID {
		if err := k.report(cur, phase, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: int32(code), Reason: reason, FinishedAt: metav1.Now()}}); err != nil && !apierrors.IsNotFound(err) {
			k.t.Logf("kubelet: report the end of %s: %v", p.Name, err)
		}
	}
	close(r.ended)
}

// Kill kills the containers of the pods with a label, as the loss of their node does.
// It reports whether there was one.
func (k *Kubelet) Kill(label, value string) (killed bool) {
	pods, err := k.c.CoreV1().Pods(k.namespace).List(k.ctx, metav1.ListOptions{LabelSelector: label + "=" + value})
	if err != nil {
		k.t.Errorf("kubelet: list the pods with %s=%s: %v", label, value, err)
		return false
	}
	for i := range pods.Items {
		if r := k.run(&pods.Items[i]); r != nil && r.cmd.Process.Kill() == nil {
			killed = true
			<-r.ended
		}
	}
	return killed
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
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

// serveLog answers the API server's request for a container's log,
// /containerLogs/<namespace>/<pod>/<container>.
func (k *Kubelet) serveLog(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(parts) != 4 || parts[0] != "containerLogs" {
		http.NotFound(w, r)
		return
	}
	http.ServeFile(w, r, filepath.Join(k.logs, filepath.Base(parts[2])))
}

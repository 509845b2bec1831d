// Package docker runs each step as a container of a Docker Engine on the agent's machine. Of the runner's data folder, a
// container can access only the step's folder, the attempt's workspace and Step.Folders. Most of Step.Folders are
// read-only. The container cannot access other files, such as the runner's key. It has a read-only root and no
// capabilities, and it cannot gain capabilities. It runs as the agent's user and group, so that the agent can read the
// step's files and the step can read the agent's files.
//
// The launch token is in the container's environment. A user who can read it from the engine can also read the memory of
// any process on the machine.
//
// The engine keeps an ended container until Remove, so a new agent still learns how the step ended.
package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/workspace"
)

// Labels of a container.
const (
	LabelRunner  = "fairlead.dev/runner"
	LabelAttempt = "fairlead.dev/attempt"
)

const (
	// killFor bounds Kill. The engine sends a signal, and the container ends at once unless the kernel delays it.
	killFor = 30 * time.Second
	// The defaults of jobs: the time to save a state, and the number of processes.
	stopGrace = runnerspec.Duration(2 * time.Minute)
	pidsLimit = 1024
	// maxLog limits the step's own output that the engine keeps. This output explains faults. It does not contain the job's
	// log.
	maxLog = "10m"
	// ask bounds one request to the engine after a step has started.
	ask = 10 * time.Second
)

// Options of New.
type Options struct {
	// If the engine shuts down or an operator runs `docker stop`, a step has the time Job.StopGrace to stop.
	runnerspec.DockerRunner
	Steps  string // folder of the steps' folders, which the caller creates; absolute
	Runner string // id of the runner, for a label
	// Via, if not nil, wraps the transport to the engine.
	Via func(http.RoundTripper) http.RoundTripper
}

// Executor starts steps as containers. Safe for concurrent use.
type Executor struct {
	o      Options
	data   string // the data folder
	host   string // the data folder's path as the engine sees it
	engine *client.Client
	binds  []mount.Mount
	runner runnerProgram
	idle   func() // closes the idle connections that the engine's client does not close
}

// New returns an Executor. It does not contact the engine: an agent can start while the engine is down.
func New(o Options) (*Executor, error) {
	if !filepath.IsAbs(o.Steps) {
		panic("docker.New: needs an absolute path")
	}
	o.Host = cmp.Or(o.Host, "unix:///var/run/docker.sock")
	o.Job.ImagePullPolicy = cmp.Or(o.Job.ImagePullPolicy, PullIfNotPresent)
	o.Job.StopGrace = cmp.Or(o.Job.StopGrace, stopGrace)
	o.Job.PIDsLimit = cmp.Or(o.Job.PIDsLimit, pidsLimit)
	e := &Executor{o: o, data: filepath.Dir(o.Steps)}
	e.host = cmp.Or(o.Job.HostData, e.data)
	for _, v := range o.Job.Volumes {
		parts := append(strings.Split(v, ":"), "", "")
		e.binds = append(e.binds, mount.Mount{Type: mount.TypeBind, Source: parts[0], Target: parts[1], ReadOnly: parts[2] == "ro"})
	}
	var err error
	if e.engine, e.idle, err = dial(o); err != nil {
		return nil, fmt.Errorf("runner_configuration.host: %w", err)
	}
	if o.Job.Image == "" {
		return nil, executor.Incomplete("job.image")
	}
	return e, nil
}

// Check returns an error if the engine does not answer.
func (e *Executor) Check(ctx context.Context) error {
	if _, err := e.engine.Ping(ctx, client.PingOptions{}); err != nil {
		return fmt.Errorf("the Docker Engine at %s does not answer: %w", e.engine.DaemonHost(), err)
	}
	return nil
}

// Close closes idle connections to the engine. Steps continue.
func (e *Executor) Close() {
	e.engine.Close()
	e.idle()
}

// dial returns a client, which connects at its first request.
func dial(o Options) (c *client.Client, idle func(), err error) {
	opts := []client.Opt{client.WithUserAgent("fairlead-runner"), client.WithHost(o.Host)}
	plain, err := client.New(opts...)
	if err != nil || o.Via == nil {
		return plain, func() {}, err
	}
	through := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return plain.Dialer()(ctx) }}
	c, err = client.New(append(opts, client.WithHTTPClient(&http.Client{Transport: o.Via(through)}), client.WithScheme("http"))...)
	return c, through.CloseIdleConnections, err
}

// Place is a container that sees the step's folder at its path on the machine.
func (e *Executor) Place() executor.Place {
	return executor.Place{Data: e.data, Shared: true, OwnImages: true, KillFor: killFor}
}

// name returns the name of an attempt's container. Attempt IDs are unique and valid in names.
func name(id string) string { return "fairlead-" + id }

// Start creates the container and starts it.
func (e *Executor) Start(ctx context.Context, s executor.Step) (executor.Handle, error) {
	if err := e.prepare(s); err != nil {
		return nil, fmt.Errorf("start step %s: %w", s.ID, err)
	}
	if err := e.havePulled(ctx, e.o.Job.Image, false); err != nil {
		return nil, fmt.Errorf("start step %s: %w", s.ID, err)
	}
	own, err := e.ownImage(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("start step %s: %w", s.ID, err)
	}
	rootless, err := executor.Retry(ctx, passing, e.rootless)
	if err != nil {
		return nil, fmt.Errorf("start step %s: query the Docker Engine at %s: %w", s.ID, e.engine.DaemonHost(), err)
	}
	if err := executor.Try(ctx, passing, func(ctx context.Context) error { return e.create(ctx, s, own, rootless) }); err != nil {
		return nil, e.giveUp(ctx, s.ID, fmt.Errorf("create a container for step %s: %w", s.ID, err))
	}
	h := &handle{e: e, id: s.ID}
	unclear := false
	err = executor.Try(ctx, passing, func(ctx context.Context) error {
		if unclear {
			// Starting a container that has ended would run the step again.
			c, err := e.engine.ContainerInspect(ctx, name(s.ID), client.ContainerInspectOptions{})
			if err != nil || c.Container.State.Status != container.StateCreated {
				return err
			}
		}
		_, err := e.engine.ContainerStart(ctx, name(s.ID), client.ContainerStartOptions{})
		unclear = unclear || err != nil && passing(err)
		return err
	})
	switch {
	case err == nil:
		return h, nil
	case unclear && passing(err):
		// The step may run. After an error here, another attempt would start while this step runs. Wait repeats its request
		// until the engine answers.
		return h, nil
	}
	return nil, e.giveUp(ctx, s.ID, fmt.Errorf("start the container of step %s: %w", s.ID, err))
}

// giveUp removes the container of a failed start, if it exists.
func (e *Executor) giveUp(ctx context.Context, id string, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ask)
	defer cancel()
	return errors.Join(cause, e.Remove(ctx, id))
}

// prepare creates the folders that the container shares. The engine would create missing folders so that only root can
// use them.
func (e *Executor) prepare(s executor.Step) error {
	if st, err := os.Stat(filepath.Join(e.o.Steps, s.ID)); err != nil || !st.IsDir() {
		return fmt.Errorf("its folder is missing: %w", err)
	}
	for _, f := range append(s.Folders, executor.Folder{Path: filepath.Join(workspace.Root, s.ID)}) {
		if err := os.MkdirAll(filepath.Join(e.data, f.Path), 0o700); err != nil {
			return fmt.Errorf("create a shared folder: %w", err)
		}
	}
	return nil
}

// rootless reports whether the engine runs without root. If so, root in a container is the engine's user on the machine,
// and the engine's user must be the agent's user.
func (e *Executor) rootless(ctx context.Context) (bool, error) {
	info, err := e.engine.Info(ctx, client.InfoOptions{})
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(info.Info.SecurityOptions, func(o string) bool { return strings.HasPrefix(o, "name=rootless") }), nil
}

func (e *Executor) create(ctx context.Context, s executor.Step, own []mount.Mount, rootless bool) error {
	user := strconv.Itoa(os.Getuid()) + ":" + strconv.Itoa(os.Getgid())
	if rootless {
		user = "0:0"
	}
	labels := map[string]string{}
	maps.Copy(labels, e.o.Job.Labels)
	labels[LabelRunner], labels[LabelAttempt] = e.o.Runner, s.ID
	mounts := slices.Concat(e.binds, own)
	bind := func(rel, at string, write bool) {
		mounts = append(mounts, mount.Mount{Type: mount.TypeBind, Source: filepath.Join(e.host, rel), Target: filepath.Join(e.data, at), ReadOnly: !write})
	}
	work := filepath.Join(workspace.Root, s.ID)
	if s.Site != "" { // the tool runs here; the path is the same for all jobs of the component
		bind(work, filepath.Join(workspace.Sites, s.Site), true)
	}
	writable := []executor.Folder{{Path: filepath.Join(filepath.Base(e.o.Steps), s.ID), Write: true}, {Path: work, Write: true}}
	for _, f := range slices.Concat(writable, s.Folders) {
		bind(f.Path, f.Path, f.Write)
	}
	stop := int(time.Duration(e.o.Job.StopGrace) / time.Second)
	// A tool needs a home folder that it can write to. The home of the image's user is not writable here.
	environ := slices.Concat([]string{"HOME=/tmp"}, s.Env, s.Secrets)
	config := &container.Config{
		Image: e.o.Job.Image, Cmd: s.Args, User: user, Labels: labels, StopTimeout: &stop, StopSignal: "SIGTERM",
		Env: append(environ, executor.EnvironIn(s.Image, environ, nil)...), WorkingDir: filepath.Join(e.o.Steps, s.ID),
	}
	if s.Image != "" {
		config.Image, config.Entrypoint = s.Image, []string{executor.ImageProgram}
		config.Healthcheck = &container.HealthConfig{Test: []string{"NONE"}} // a check of the image would be a process that the step does not know
	}
	_, err := e.engine.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name:   name(s.ID),
		Config: config,
		HostConfig: &container.HostConfig{
			Mounts: mounts, NetworkMode: container.NetworkMode(e.o.Job.Network), ExtraHosts: e.o.Job.ExtraHosts,
			ReadonlyRootfs: true, Tmpfs: map[string]string{"/tmp": "rw,nosuid,nodev,exec,mode=1777"},
			CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"},
			RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
			LogConfig:     container.LogConfig{Type: "local", Config: map[string]string{"max-size": maxLog, "max-file": "1", "compress": "false"}},
			Resources:     e.resources(s),
		},
	})
	if errdefs.IsConflict(err) && e.ours(ctx, s.ID) {
		return nil // created by an earlier request whose answer was lost
	}
	return err
}

func (e *Executor) resources(s executor.Step) container.Resources {
	memory := int64(cmp.Or(s.Memory, e.o.Job.MemoryLimit))
	r := container.Resources{NanoCPUs: int64(cmp.Or(s.CPU, e.o.Job.CPULimit)) * 1e6, Memory: memory, MemorySwap: memory} // no swap in addition
	if pids := int64(e.o.Job.PIDsLimit); pids > 0 {
		r.PidsLimit = &pids
	}
	return r
}

// ours reports whether the attempt's container belongs to this runner.
func (e *Executor) ours(ctx context.Context, id string) bool {
	c, err := e.engine.ContainerInspect(ctx, name(id), client.ContainerInspectOptions{})
	return err == nil && c.Container.Config != nil && c.Container.Config.Labels[LabelAttempt] == id && c.Container.Config.Labels[LabelRunner] == e.o.Runner
}

// Attach finds the container of an attempt, running or ended.
func (e *Executor) Attach(ctx context.Context, id string) (executor.Handle, error) {
	h := &handle{e: e, id: id}
	c, err := executor.Retry(ctx, passing, func(ctx context.Context) (client.ContainerInspectResult, error) {
		return e.engine.ContainerInspect(ctx, name(id), client.ContainerInspectOptions{})
	})
	switch {
	case errdefs.IsNotFound(err):
		h.Set(executor.Exit{Cause: fairlead.CauseVanished, Message: "the engine has no container of the step: it was never started, or another program removed it"})
		return h, executor.ErrGone
	case err != nil && passing(err):
		// When the engine is available again, the container may still exist. Wait repeats its request until the engine
		// answers.
		return h, nil
	case err != nil:
		return nil, fmt.Errorf("attach to step %s: %w", id, err)
	}
	if c.Container.State != nil && c.Container.State.Status == container.StateCreated {
		// The agent died before it started the container. The launch token is lost with that agent.
		h.Set(executor.Never(fairlead.CauseLaunchFailed, "the agent was restarted before it could start the container"))
		return h, errors.Join(executor.ErrGone, e.Remove(ctx, id))
	}
	return h, nil
}

// Remove removes the container and its anonymous volumes.
func (e *Executor) Remove(ctx context.Context, id string) error {
	_, err := executor.Retry(ctx, passing, func(ctx context.Context) (client.ContainerRemoveResult, error) {
		return e.engine.ContainerRemove(ctx, name(id), client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	})
	if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) { // a conflict means that the engine already removes the container
		return fmt.Errorf("remove the container of step %s: %w", id, err)
	}
	return nil
}

// passing reports whether a retry may succeed.
func passing(err error) bool {
	switch {
	case errors.Is(err, context.Canceled), errdefs.IsNotFound(err), errdefs.IsInvalidArgument(err), errdefs.IsConflict(err),
		errdefs.IsUnauthorized(err), errdefs.IsPermissionDenied(err), errdefs.IsNotImplemented(err), errdefs.IsInternal(err):
		return false
	}
	return true
}

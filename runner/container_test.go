package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
)

// containerSpec describes a container. The process that runContainer makes of the test binary stands for it: it has the container's
// output, gets its signals, and ends with its exit code.
type containerSpec struct {
	Engine string // address
	Config container.Config
	Host   container.HostConfig
}

const containerVariable = "RUNNER_TEST_CONTAINER"

// command returns the command that runs the container.
func (c containerSpec) command(t testing.TB) *exec.Cmd {
	t.Helper()
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "container")
	cmd.Env = []string{containerVariable + "=" + string(b), "GOCOVERDIR=" + t.TempDir()}
	return cmd
}

// runContainer is the process of containerSpec.command.
func runContainer() int {
	code, err := (func() (int, error) {
		var s containerSpec
		if err := json.Unmarshal([]byte(os.Getenv(containerVariable)), &s); err != nil {
			return 0, err
		}
		c, err := client.New(client.WithHost(s.Engine))
		if err != nil {
			return 0, err
		}
		ctx := context.Background()
		made, err := c.ContainerCreate(ctx, client.ContainerCreateOptions{Config: &s.Config, HostConfig: &s.Host})
		if err != nil {
			return 0, err
		}
		defer c.ContainerRemove(ctx, made.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		signals := make(chan os.Signal, 4)
		signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
		end := c.ContainerWait(ctx, made.ID, client.ContainerWaitOptions{Condition: container.WaitConditionNextExit})
		if _, err := c.ContainerStart(ctx, made.ID, client.ContainerStartOptions{}); err != nil {
			return 0, err
		}
		output, err := c.ContainerLogs(ctx, made.ID, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Follow: true})
		if err != nil {
			return 0, err
		}
		written := make(chan error, 1)
		go func() { _, err := stdcopy.StdCopy(os.Stdout, os.Stderr, output); written <- err }()
		for {
			select {
			case <-signals:
				if _, err := c.ContainerKill(ctx, made.ID, client.ContainerKillOptions{Signal: "SIGTERM"}); err != nil {
					return 0, err
				}
			case err := <-end.Error:
				return 0, err
			case r := <-end.Result:
				return int(r.StatusCode), <-written
			}
		}
	})()
	if err != nil {
		fmt.Fprintln(os.Stderr, "container:", err)
		return 125
	}
	return code
}

package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/authconfig"
	"github.com/moby/moby/api/types/registry"
	"github.com/moby/moby/client"

	"github.com/fairlead/fairlead/runner/executor"
)

// The values of job.image_pull_policy.
const (
	PullAlways       = "Always"
	PullIfNotPresent = "IfNotPresent"
	PullNever        = "Never"
)

var errStalled = errors.New("the registry sends nothing")

// havePulled ensures that the engine has an image: that of the runner, or one of a step's own.
func (e *Executor) havePulled(ctx context.Context, image string, own bool) error {
	refuse := func(format string, args ...any) error {
		return &executor.LaunchError{Cause: executor.ImageCause(own), Err: fmt.Errorf(format, args...)}
	}
	if e.o.Job.ImagePullPolicy != PullAlways || own { // an image by digest never changes
		present, err := executor.Retry(ctx, passing, func(ctx context.Context) (bool, error) {
			_, err := e.engine.ImageInspect(ctx, image)
			if errdefs.IsNotFound(err) {
				return false, nil
			}
			return err == nil, err
		})
		if err != nil {
			return fmt.Errorf("ask the Docker Engine at %s for the image %s: %w", e.engine.DaemonHost(), image, err)
		}
		if present {
			return nil
		}
		if e.o.Job.ImagePullPolicy == PullNever {
			return refuse("the image %s is not on the machine, and job.image_pull_policy is %s", image, PullNever)
		}
	}
	if err := e.pull(ctx, image); err != nil {
		return refuse("pull the image %s: %w", image, err)
	}
	return nil
}

// pull pulls an image. It has no time limit while the registry sends data.
func (e *Executor) pull(ctx context.Context, image string) error {
	auth, err := e.auth(image)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(executor.LaunchTime, func() { cancel(errStalled) })
	defer watchdog.Stop()
	stream, err := executor.Retry(ctx, passing, func(context.Context) (client.ImagePullResponse, error) {
		return e.engine.ImagePull(ctx, image, client.ImagePullOptions{RegistryAuth: auth}) // the stream outlives this call
	})
	if err == nil {
		defer stream.Close()
		for m, merr := range stream.JSONMessages(ctx) {
			watchdog.Reset(executor.LaunchTime)
			if merr != nil {
				err = merr
				break
			}
			if m.Error != nil {
				err = m.Error
				break
			}
		}
	}
	if err != nil && errors.Is(context.Cause(ctx), errStalled) {
		return errStalled
	}
	return err
}

// auth returns the header for the registry of an image. It reads the password each time, because the password may be renewed.
// The password is for the registry of the runner's image, and no other registry gets it.
func (e *Executor) auth(image string) (string, error) {
	of := e.o.Job.Registry
	if of == nil || hostOf(image) != hostOf(e.o.Job.Image) {
		return "", nil
	}
	b, err := os.ReadFile(of.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("runner_configuration.job.registry.password_file: %w", err)
	}
	return authconfig.Encode(registry.AuthConfig{Username: of.Username, Password: strings.TrimSpace(string(b))})
}

// hostOf returns the registry of an image as the engine finds it.
func hostOf(image string) string {
	host, _, found := strings.Cut(image, "/")
	if !found || !strings.ContainsAny(host, ".:") && host != "localhost" {
		return "docker.io"
	}
	return host
}

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

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/executor"
)

// The values of job.image_pull_policy.
const (
	PullAlways       = "Always"
	PullIfNotPresent = "IfNotPresent"
	PullNever        = "Never"
)

var errStalled = errors.New("the registry sends nothing")

// havePulled ensures that the engine has the image.
func (e *Executor) havePulled(ctx context.Context) error {
	if e.o.Job.ImagePullPolicy != PullAlways {
		present, err := executor.Retry(ctx, passing, func(ctx context.Context) (bool, error) {
			_, err := e.engine.ImageInspect(ctx, e.o.Job.Image)
			if errdefs.IsNotFound(err) {
				return false, nil
			}
			return err == nil, err
		})
		if err != nil {
			return fmt.Errorf("ask the Docker Engine at %s for the image %s: %w", e.engine.DaemonHost(), e.o.Job.Image, err)
		}
		if present {
			return nil
		}
		if e.o.Job.ImagePullPolicy == PullNever {
			return &executor.LaunchError{Cause: fairlead.CauseImagePull, Err: fmt.Errorf("the image %s is not on the machine, and job.image_pull_policy is %s", e.o.Job.Image, PullNever)}
		}
	}
	if err := e.pull(ctx); err != nil {
		return &executor.LaunchError{Cause: fairlead.CauseImagePull, Err: fmt.Errorf("pull the image %s: %w", e.o.Job.Image, err)}
	}
	return nil
}

// pull pulls the image. It has no time limit while the registry sends data.
func (e *Executor) pull(ctx context.Context) error {
	auth, err := e.auth()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(executor.LaunchTime, func() { cancel(errStalled) })
	defer watchdog.Stop()
	stream, err := executor.Retry(ctx, passing, func(context.Context) (client.ImagePullResponse, error) {
		return e.engine.ImagePull(ctx, e.o.Job.Image, client.ImagePullOptions{RegistryAuth: auth}) // the stream outlives this call
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

// auth returns the header for the registry. It reads the password each time, because the password may be renewed.
func (e *Executor) auth() (string, error) {
	of := e.o.Job.Registry
	if of == nil {
		return "", nil
	}
	b, err := os.ReadFile(of.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("runner_configuration.job.registry.password_file: %w", err)
	}
	return authconfig.Encode(registry.AuthConfig{Username: of.Username, Password: strings.TrimSpace(string(b))})
}

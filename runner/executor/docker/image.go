package docker

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/executor"
	"github.com/fairlead/fairlead/runner/internal/selfcopy"
)

// programs is the folder of the data folder with the runner's program, out of the runner's image. No step can write there.
const programs = "image-programs"

// Limits of the files that are copied out of the runner's image, in bytes.
const (
	maxProgram = 1 << 30
	maxRoots   = 16 << 20
)

// runnerProgram is the runner's program in the data folder.
type runnerProgram struct {
	copying sync.Mutex
	image   string // ID of the image from which it was copied; "": it was not looked for yet
	mounts  []mount.Mount
}

// ownImage makes the engine ready for a step in an image of its own: it pulls the image, and returns the mounts with the
// runner's program. It returns nothing for another step.
func (e *Executor) ownImage(ctx context.Context, s executor.Step) ([]mount.Mount, error) {
	if s.Image == "" {
		return nil, nil
	}
	if err := e.havePulled(ctx, s.Image, true); err != nil {
		return nil, err
	}
	inspect := func(image string) (client.ImageInspectResult, error) {
		return executor.Retry(ctx, passing, func(ctx context.Context) (client.ImageInspectResult, error) { return e.engine.ImageInspect(ctx, image) })
	}
	runners, err := inspect(e.o.Job.Image)
	if err != nil {
		return nil, fmt.Errorf("look at the runner's image %s: %w", e.o.Job.Image, err)
	}
	own, err := inspect(s.Image)
	if err != nil {
		return nil, fmt.Errorf("look at the image %s: %w", s.Image, err)
	}
	if own.Os != runners.Os || own.Architecture != runners.Architecture {
		return nil, &executor.LaunchError{Cause: fairlead.CauseImageUnavailable,
			Err: fmt.Errorf("the image %s is for %s/%s, and the runner's machine needs %s/%s", s.Image, own.Os, own.Architecture, runners.Os, runners.Architecture)}
	}
	return e.program(ctx, runners)
}

// program returns the mounts with the runner's program and its certificate authorities. It copies them out of the runner's
// image when it needs them for the first time: the agent's own program can be another one.
func (e *Executor) program(ctx context.Context, image client.ImageInspectResult) ([]mount.Mount, error) {
	e.runner.copying.Lock()
	defer e.runner.copying.Unlock()
	if e.runner.image == image.ID {
		return e.runner.mounts, nil
	}
	if image.Config == nil || len(image.Config.Entrypoint) == 0 || !filepath.IsAbs(image.Config.Entrypoint[0]) {
		return nil, &executor.LaunchError{Cause: fairlead.CauseMisconfigured, Err: fmt.Errorf("the image %s starts no program by its absolute path, so it is not the runner's image", e.o.Job.Image)}
	}
	sum := sha256.Sum256([]byte(image.ID))
	version := hex.EncodeToString(sum[:8])
	folder := filepath.Join(e.data, programs, version)
	if _, err := os.Stat(folder); err != nil {
		if err := e.copyProgram(ctx, image, folder); err != nil {
			return nil, fmt.Errorf("copy the runner's program out of the image %s: %w", e.o.Job.Image, err)
		}
	}
	mounts := []mount.Mount{}
	for _, file := range []string{executor.ImageProgram, executor.ImageRoots} {
		in := filepath.Join(programs, version, filepath.Base(file))
		mounts = append(mounts, mount.Mount{Type: mount.TypeBind, Source: filepath.Join(e.host, in), Target: file, ReadOnly: true})
	}
	e.runner.image, e.runner.mounts = image.ID, mounts
	return mounts, nil
}

// copyProgram copies the runner's program out of its image into the folder, which it makes last. It removes the folders of
// other images: a container that runs keeps the files that it has mounted.
func (e *Executor) copyProgram(ctx context.Context, image client.ImageInspectResult, folder string) (err error) {
	parent := filepath.Dir(folder)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return err
	}
	old, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	for _, entry := range old {
		if err := os.RemoveAll(filepath.Join(parent, entry.Name())); err != nil {
			return err
		}
	}
	made, err := executor.Retry(ctx, passing, func(ctx context.Context) (client.ContainerCreateResult, error) {
		return e.engine.ContainerCreate(ctx, client.ContainerCreateOptions{
			Config:     &container.Config{Image: image.ID, Labels: map[string]string{LabelRunner: e.o.Runner}},
			HostConfig: &container.HostConfig{NetworkMode: "none"},
		})
	})
	if err != nil {
		return err
	}
	defer func() { // it never runs
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ask)
		defer cancel()
		_, gone := e.engine.ContainerRemove(ctx, made.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		err = errors.Join(err, gone)
	}()
	partial := folder + ".new"
	if err := os.Mkdir(partial, 0o700); err != nil {
		return err
	}
	if err := e.copyFile(ctx, made.ID, image.Config.Entrypoint[0], filepath.Join(partial, filepath.Base(executor.ImageProgram)), 0o555, maxProgram); err != nil {
		return err
	}
	err = e.copyFile(ctx, made.ID, selfcopy.RootsInImage, filepath.Join(partial, filepath.Base(executor.ImageRoots)), 0o444, maxRoots)
	if errdefs.IsNotFound(err) {
		err = os.WriteFile(filepath.Join(partial, filepath.Base(executor.ImageRoots)), nil, 0o444)
	}
	if err != nil {
		return err
	}
	return os.Rename(partial, folder)
}

// copyFile copies one regular file out of a container.
func (e *Executor) copyFile(ctx context.Context, id, from, to string, mode os.FileMode, limit int64) error {
	out, err := e.engine.CopyFromContainer(ctx, id, client.CopyFromContainerOptions{SourcePath: from})
	if err != nil {
		return err
	}
	defer out.Content.Close()
	archive := tar.NewReader(out.Content)
	header, err := archive.Next()
	if err != nil {
		return err
	}
	if header.Typeflag != tar.TypeReg || header.Size > limit {
		return fmt.Errorf("%s is not a regular file of at most %d bytes", from, limit)
	}
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, archive)
	return errors.Join(err, f.Chmod(mode), f.Close())
}

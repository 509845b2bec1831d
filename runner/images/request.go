package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/regclient/regclient/types/ref"

	"github.com/fairlead/fairlead/pkg/bundle"
	"github.com/fairlead/fairlead/runner/images/mirror"
)

// maxRequest is the largest request of the CLI, in bytes.
const maxRequest = 4 << 20

// resolvedAtOnce is the number of images that are looked up in parallel.
const resolvedAtOnce = 6

// answer serves one request of the CLI. It uses the logins of the person's Docker configuration.
func answer(name string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	text, err := io.ReadAll(io.LimitReader(os.Stdin, maxRequest))
	if err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	var out any
	switch name {
	case bundle.Rendered:
		var req struct {
			bundle.RenderRequest
			Vars map[string]json.RawMessage `json:"vars"`
		}
		if err := json.Unmarshal(text, &req); err != nil {
			return fmt.Errorf("read the request: %w", err)
		}
		out = named(req.Source, req.Vars)
	case bundle.Resolved:
		var req bundle.ResolveRequest
		if err := json.Unmarshal(text, &req); err != nil {
			return fmt.Errorf("read the request: %w", err)
		}
		out = resolve(ctx, req)
	case bundle.Copied:
		var req bundle.CopyRequest
		if err := json.Unmarshal(text, &req); err != nil {
			return fmt.Errorf("read the request: %w", err)
		}
		out = copied(ctx, req)
	default:
		return fmt.Errorf("the program has no request %q: without arguments it speaks the protocol of plugins", name)
	}
	line, err := bundle.Answer(out)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	_, err = os.Stdout.Write(line)
	return err
}

// named returns the image of a component.
func named(source string, vars map[string]json.RawMessage) bundle.RenderAnswer {
	src, err := mirror.Read(os.DirFS(source), vars)
	if err != nil {
		return bundle.RenderAnswer{Images: []bundle.Found{}, Error: err.Error()}
	}
	return bundle.RenderAnswer{Images: []bundle.Found{{Image: src.Image.CommonName(), Object: "the component", Place: mirror.File}}}
}

func client(target mirror.Target, sources []ref.Ref) *mirror.Client {
	return mirror.NewClient(target, mirror.Options{Docker: true, UserAgent: "fairlead/" + Version}, sources...)
}

// resolve looks up the images of all references.
func resolve(ctx context.Context, req bundle.ResolveRequest) bundle.ResolveAnswer {
	out := bundle.ResolveAnswer{Errors: map[string]string{}}
	var sources []ref.Ref
	for _, reference := range req.References {
		if r, err := ref.New(reference); err == nil {
			sources = append(sources, r)
		}
	}
	e := &mirror.Engine{Client: client(mirror.Target{}, sources), Log: os.Stderr}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(resolvedAtOnce)
	for _, reference := range req.References {
		group.Go(func() error {
			image, err := e.Resolve(ctx, reference)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				out.Errors[reference] = err.Error()
				return nil
			}
			out.Images = append(out.Images, image)
			return nil
		})
	}
	_ = group.Wait() // each error is in the answer
	slices.SortFunc(out.Images, func(a, b bundle.Image) int { return strings.Compare(a.Reference, b.Reference) })
	return out
}

// copied copies the images to one repository.
func copied(ctx context.Context, req bundle.CopyRequest) bundle.CopyAnswer {
	l := bundle.Lock{Images: req.Images}
	sources, err := mirror.Sources(l)
	if err != nil {
		return bundle.CopyAnswer{Error: err.Error()}
	}
	target := mirror.Target{URL: req.Registry, Repository: req.Repository}
	e := &mirror.Engine{Client: client(target, sources), Target: target, Log: os.Stderr}
	reference, err := e.CopySet(ctx, l)
	if err != nil {
		return bundle.CopyAnswer{Error: err.Error()}
	}
	return bundle.CopyAnswer{Reference: reference}
}

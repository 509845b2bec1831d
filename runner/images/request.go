package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/regclient/regclient/types/ref"

	"github.com/fairlead/fairlead/pkg/bundle"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/pluginprotocol"
	"github.com/fairlead/fairlead/runner/images/mirror"
	"github.com/fairlead/fairlead/runner/images/provider"
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
	case bundle.Archived:
		var req bundle.ArchiveRequest
		if err := json.Unmarshal(text, &req); err != nil {
			return fmt.Errorf("read the request: %w", err)
		}
		return archive(ctx, req, os.Stdout)
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

// copied copies a bundle to one repository, or to a layout.
func copied(ctx context.Context, req bundle.CopyRequest) bundle.CopyAnswer {
	out, err := copyBundle(ctx, req)
	if err != nil {
		return bundle.CopyAnswer{Error: err.Error()}
	}
	return out
}

func copyBundle(ctx context.Context, req bundle.CopyRequest) (bundle.CopyAnswer, error) {
	sources, err := mirror.Sources(bundle.Lock{Images: req.Bundle.Images})
	if err != nil {
		return bundle.CopyAnswer{}, err
	}
	target := mirror.Target{URL: req.Registry, Repository: req.Repository}
	if at := req.From + req.Layout; at != "" {
		// The library does not accept each path of a folder, so the program goes there.
		if err := os.Chdir(at); err != nil {
			return bundle.CopyAnswer{}, fmt.Errorf("open the layout: %w", err)
		}
	}
	if req.Layout != "" {
		target = mirror.Target{Layout: here}
		if err := mirror.MakeLayout(here); err != nil {
			return bundle.CopyAnswer{}, err
		}
	}
	o := mirror.Options{Docker: true, UserAgent: "fairlead/" + Version, Logins: map[string]mirror.Login{}, CAs: map[string]string{}}
	if req.Login != "" {
		if o.Logins, err = mirror.ParseLogins(target.Host(), req.Login); err != nil {
			return bundle.CopyAnswer{}, fmt.Errorf("the login to %s: %w", target.Host(), err)
		}
	}
	if req.CA != "" {
		o.CAs[target.Host()] = req.CA
	}
	if req.Host.URL != "" {
		o.Source = &mirror.Target{URL: req.Host.URL}
		host := o.Source.Host()
		o.Logins[host] = mirror.Login{Username: req.Host.Username, Password: req.Host.Password}
		if req.Host.CA != "" {
			o.CAs[host] += req.Host.CA
		}
	}
	e := &mirror.Engine{Client: mirror.NewClient(target, o, sources...), Target: target, Log: os.Stderr}
	if req.From != "" {
		return e.CopyFrom(ctx, mirror.Target{Layout: here})
	}
	temporary, err := os.MkdirTemp("", "fairlead-providers-")
	if err != nil {
		return bundle.CopyAnswer{}, fmt.Errorf("make a folder for archives: %w", err)
	}
	defer os.RemoveAll(temporary)
	f := &provider.Finder{Client: http.DefaultClient, Token: tokenFor, Folder: req.Providers, Temporary: temporary, Platforms: req.Platforms}
	return e.CopyWhole(ctx, req.Bundle, f.Archives)
}

// archive writes the archive of a provider in the mirror of an install's registry. It uses the login of the job.
func archive(ctx context.Context, req bundle.ArchiveRequest, w io.Writer) error {
	c, err := connect(ctx, pluginprotocol.Request{Type: component.Bundle, Registry: &pluginprotocol.Registry{Kind: req.Kind, URL: req.URL, Repository: req.Repository, Login: req.Login, CA: req.CA, Region: req.Region}})
	if err != nil {
		return err
	}
	if c.mirror == (mirror.Target{}) {
		return mirror.ErrAbsent
	}
	return c.engine().Archive(ctx, c.mirror, req.Address, req.Version, req.Platform, w)
}

// here is the folder in which the program works.
const here = "."

// tokenFor returns the token for a registry of providers from the variable that OpenTofu and Terraform read; "": there is none.
func tokenFor(host string) string {
	return os.Getenv("TF_TOKEN_" + strings.ReplaceAll(strings.ReplaceAll(host, "-", "__"), ".", "_"))
}

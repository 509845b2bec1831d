package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/bundle"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/safefile"
)

func (c *cli) appLock() *cobra.Command {
	var update bool
	cmd := &cobra.Command{
		Use: "lock DIR", Short: "Write the lock of a closed app's images",
		Long: `Renders the charts and manifests of the app in DIR, and finds the images of their
objects. Adds the images that app.yaml names: under bundle.images, and as image of
components and actions. Looks up the digest of
each image in its registry, and writes DIR/bundle/images.lock. Commit this file with
app.yaml: 'fairlead app apply' publishes it as a part of the version.

An image that is in the lock already keeps its digest. With --update, the command looks
up the digests of all images again.

Values that only an install has are placeholders: inputs have their defaults. A component
is rendered once more for each of its inputs of type bool, with the other value. The
command fails, and names each image, if an image depends on a value that only an
install has. The logins to registries are those of your Docker configuration.`,
		Example: `  fairlead app lock .
  fairlead app lock . --update --json | jq '.changed'`,
		ValidArgsFunction: directories,
		RunE: func(cmd *cobra.Command, args []string) error {
			locked, err := c.lock(cmd.Context(), args[0], update)
			if err != nil {
				return err
			}
			return c.print(locked)
		},
	}
	cmd.Flags().BoolVar(&update, "update", false, "look up the digests of all images again")
	return cmd
}

// lock writes the lock of the app in the folder.
func (c *cli) lock(ctx context.Context, dir string, update bool) (view.Locked, error) {
	root, err := openApp(dir)
	if err != nil {
		return view.Locked{}, err
	}
	defer root.Close()
	app, problems := appspec.LoadUnlocked(root.FS())
	if len(problems) > 0 {
		return view.Locked{}, invalidApp(dir, problems)
	}
	if !app.Closed() {
		return view.Locked{}, usage("Write `bundle: {}` in app.yaml to make it closed.", "the app %s is not closed, so it has no lock", app.Name)
	}
	before, _, problems := appspec.ReadLock(root.FS())
	if len(problems) > 0 {
		c.say("The lock cannot be read, and is written again: %s", problems[0].Message)
		before = bundle.Lock{}
	}
	if err := fixed(app); err != nil {
		return view.Locked{}, err
	}
	after := bundle.Lock{Named: maps.Clone(app.Bundle.Images), Sources: map[string]string{}}
	used := map[string][]string{}
	for name, image := range app.Bundle.Images {
		used[image] = append(used[image], app.ImageUser(name))
	}
	folders, err := c.fetchBuilt(ctx, app)
	if err != nil {
		return view.Locked{}, err
	}
	defer folders.remove()
	var left []string
	for _, part := range app.Locked() {
		if after.Sources[part.Name], err = appspec.RenderedDigest(root.FS(), app, part); err != nil {
			return view.Locked{}, err
		}
		source := filepath.Join(dir, filepath.FromSlash(part.Source))
		if part.Built() {
			source = folders.of(part.Name)
		}
		found, err := c.imagesOf(ctx, source, app, part)
		if err != nil {
			return view.Locked{}, err
		}
		for _, f := range found {
			if f.Image == bundle.ImagePlaceholder {
				continue // the copy of a component of type image
			}
			normal, err := bundle.Normalize(f.Image)
			switch {
			case strings.Contains(f.Image, bundle.Placeholder) || strings.Contains(f.Image, bundle.ImagePlaceholder):
				left = append(left, fmt.Sprintf("component %s, %s, %s: the image %s depends on a value that only an install has", part.Name, f.Place, f.Object, f.Image))
			case err != nil:
				left = append(left, fmt.Sprintf("component %s, %s, %s: %q is not the reference of an image: %v", part.Name, f.Place, f.Object, f.Image, err))
			default:
				used[normal] = append(used[normal], part.Name)
			}
		}
	}
	if len(left) > 0 {
		slices.Sort(left)
		p := local(string(fairlead.CodeInvalidApp), "Not locked", "the images of the app cannot all be locked:\n  "+strings.Join(slices.Compact(left), "\n  "),
			"Write the image as a constant, or copy it with a component of type image and refer to its output.")
		return view.Locked{}, &failure{code: exitInvalid, problem: p}
	}
	if after.Images, err = c.resolved(ctx, used, before, update); err != nil {
		return view.Locked{}, err
	}
	if n := len(after.Images); n > bundle.MaxImages {
		return view.Locked{}, usage("Split the app.", "the app has %d images, %d are allowed", n, bundle.MaxImages)
	}
	file := filepath.Join(dir, filepath.FromSlash(appspec.LockFile))
	if err := root.Mkdir(bundle.Folder, 0o777); err != nil && !errors.Is(err, os.ErrExist) {
		return view.Locked{}, fmt.Errorf("make the folder of the lock: %w", err)
	}
	if err := safefile.Write(file, after.Encode(), 0o666); err != nil {
		return view.Locked{}, fmt.Errorf("write the lock: %w", err)
	}
	return view.NewLocked(file, before, after), nil
}

// imagesOf returns the images that the files in a component's folder name.
func (c *cli) imagesOf(ctx context.Context, folder string, app *appspec.App, part appspec.Component) ([]bundle.Found, error) {
	source, err := filepath.Abs(folder)
	if err != nil {
		return nil, fmt.Errorf("find the source of component %s: %w", part.Name, err)
	}
	variants, err := app.Assume(part)
	if err != nil {
		return nil, err
	}
	var found []bundle.Found
	for _, v := range variants {
		var answer bundle.RenderAnswer
		req := bundle.RenderRequest{Type: part.Type, Component: part.Name, Source: source, Vars: v.Vars, Options: v.Options}
		if err := c.ask(ctx, part.Program(), bundle.Rendered, req, &answer); err != nil {
			return nil, err
		}
		if answer.Error != "" {
			return nil, &failure{code: exitInvalid, problem: local(string(fairlead.CodeInvalidApp), "Not locked",
				fmt.Sprintf("the component %s cannot be rendered without an install: %s", part.Name, answer.Error), "")}
		}
		found = append(found, answer.Images...)
	}
	return found, nil
}

// fixed refuses a component of which two builds can have different images.
func fixed(app *appspec.App) error {
	for _, part := range app.Locked() {
		if !part.Built() {
			continue
		}
		if hint, ok := part.FixedBuild(); !ok {
			return usage(hint, "the source of component %s is a tag or branch, and the lock must name the images of one commit", part.Name)
		}
	}
	return nil
}

// resolved returns the images of the references, each with what uses it. An image of the earlier lock keeps its digest, unless
// update is set.
func (c *cli) resolved(ctx context.Context, used map[string][]string, before bundle.Lock, update bool) ([]bundle.Image, error) {
	var images []bundle.Image
	var req bundle.ResolveRequest
	for _, reference := range slices.Sorted(maps.Keys(used)) {
		if known, ok := before.Image(reference); ok && !update {
			images = append(images, known)
			continue
		}
		req.References = append(req.References, reference)
	}
	if len(req.References) > 0 {
		var answer bundle.ResolveAnswer
		if err := c.ask(ctx, appspec.BundleProgram(), bundle.Resolved, req, &answer); err != nil {
			return nil, err
		}
		if len(answer.Errors) > 0 {
			var why []string
			for _, reference := range slices.Sorted(maps.Keys(answer.Errors)) {
				why = append(why, fmt.Sprintf("%s: %s", reference, answer.Errors[reference]))
			}
			return nil, &failure{code: exitInvalid, problem: local(string(fairlead.CodeInvalidApp), "Not locked", "the digests of these images cannot be found:\n  "+strings.Join(why, "\n  "), "")}
		}
		images = append(images, answer.Images...)
	}
	for i := range images {
		images[i].UsedBy = used[images[i].Reference]
		slices.Sort(images[i].UsedBy)
		images[i].UsedBy = slices.Compact(images[i].UsedBy)
	}
	slices.SortFunc(images, func(a, b bundle.Image) int { return strings.Compare(a.Reference, b.Reference) })
	return images, nil
}

// ask starts a program of the runner's plugins with one request, and reads its answer.
func (c *cli) ask(ctx context.Context, program, request string, req, answer any) error {
	folder := c.env.Getenv("FAIRLEAD_PLUGINS")
	if folder == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find the folder of this program: %w", err)
		}
		folder = filepath.Join(filepath.Dir(self), "plugins")
	}
	path := filepath.Join(folder, program)
	if _, err := os.Stat(path); err != nil {
		return usage("Install the runner's plugins of the same version, or set $FAIRLEAD_PLUGINS to the folder that holds them.", "this command needs the program %s: %v", path, err)
	}
	in, err := json.Marshal(req)
	if err != nil {
		return fmt.Errorf("encode the request to %s: %w", program, err)
	}
	var out, log bytes.Buffer
	cmd := exec.CommandContext(ctx, path, request)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the program %s failed: %w: %s", path, err, fairlead.Clip(strings.TrimSpace(log.String()), 1000))
	}
	if err := json.Unmarshal(out.Bytes(), answer); err != nil {
		return fmt.Errorf("the answer of the program %s cannot be read: %w", path, err)
	}
	return nil
}

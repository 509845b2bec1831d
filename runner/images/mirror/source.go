package mirror

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/regclient/regclient/types/platform"
	"github.com/regclient/regclient/types/ref"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/pattern"
	"github.com/fairlead/fairlead/pkg/yamlnode"
	"github.com/fairlead/fairlead/runner/images/signature"
	"github.com/fairlead/fairlead/runner/plugin"
)

// File is the file of a component that names its image.
const File = "image.yaml"

// The limits of a component's files, in bytes, and of the number of its keys.
const (
	maxFile = 64 << 10
	maxKey  = 64 << 10
	maxKeys = 20
	maxKeep = 100
)

// defaultKeep is the default of keep.
const defaultKeep = 1

// Source is what a component copies.
type Source struct {
	Image     ref.Ref
	Platforms []string        // that the image must have, such as linux/arm64; empty: any
	Keep      int             // earlier images that stay in the target
	Keys      []signature.Key // of which one must have signed the image; empty: it needs no signature
}

type imageFile struct {
	Image     string      `json:"image" must:"true" check:"reference" alias:"source reference" doc:"Reference of the image: a registry and a repository, with a tag, a digest or both."`
	Platforms []string    `json:"platforms,omitempty" check:"platform" alias:"platform" doc:"Platforms that the image must have. All platforms of the image are copied."`
	Keep      *int        `json:"keep,omitempty" check:"keep" doc:"Number of earlier images that stay in the install's registry. Default: 1, because what uses the component still runs the earlier image until it is deployed too."`
	Verify    *verifyFile `json:"verify,omitempty" doc:"How the image must be signed. If absent: it needs no signature."`
}

type verifyFile struct {
	Keys []string `json:"keys" must:"true" check:"key" alias:"key" doc:"Files of public keys in PEM, in the component's folder. One of the keys must have signed the image."`
}

// Read reads a component's folder. ${vars.NAME} in the image stands for a variable of the component, in JSON. Problems name the file
// and the line; the reason is artifact-invalid.
func Read(folder fs.FS, vars map[string]json.RawMessage) (Source, error) {
	text, err := readFile(folder, File, maxFile)
	if err != nil {
		return Source{}, invalid("the component has no file %s that can be read: %v", File, err)
	}
	r := yamlnode.NewReader(File, yamlnode.Rules{Checks: map[string]yamlnode.Check{
		"reference": {Pattern: `^[^\s]+$`, Wants: "the reference of an image such as docker.io/library/nginx:1.27"},
		"platform":  {Pattern: `^[a-z0-9]+/[a-z0-9]+(/[a-z0-9]+)?$`, Wants: "a platform such as linux/amd64", Max: 50},
		"key":       {Pattern: `.`, Wants: "the path of a file", Max: maxKeys},
	}})
	r.Rules.Checks["keep"] = yamlnode.Check{Func: func(f yamlnode.Field, where string) {
		if n, err := strconv.Atoi(fmt.Sprint(f.Value.Value)); err != nil || n < 0 || n > maxKeep {
			r.Report(where, "invalid-value", fmt.Sprintf("%s must be from 0 to %d", where, maxKeep), "")
		}
	}}
	root := r.Source(yamlnode.Read, text, maxFile, "")
	var file imageFile
	if len(r.Problems) == 0 && root.Shape != yamlnode.Map {
		r.At(root.Place, "wrong-type", "the file must be a map with the field image", "")
	}
	if len(r.Problems) == 0 {
		r.Struct(root, &file, "")
		r.Controls(root)
	}
	var src Source
	if len(r.Problems) == 0 {
		text, err := substitute(file.Image, vars)
		if err == nil {
			src.Image, err = parseImage(text)
		}
		if err != nil {
			r.Report("image", "invalid-image", err.Error(), "Write it as docker pull accepts it, such as ghcr.io/acme/web:1.2 or ghcr.io/acme/web@sha256:….")
		}
	}
	if file.Verify == nil {
		file.Verify = &verifyFile{}
	}
	for i, name := range file.Verify.Keys {
		key, err := readKey(folder, name)
		if err != nil {
			r.Report(fmt.Sprintf("verify.keys.%d", i+1), "invalid-key", err.Error(), "`cosign public-key` writes the public key of a key.")
			continue
		}
		src.Keys = append(src.Keys, key)
	}
	if problems := yamlnode.Finish(r.Problems); len(problems) > 0 {
		return Source{}, invalid("%s", yamlnode.Lines(problems))
	}
	src.Platforms, src.Keep = file.Platforms, defaultKeep
	if file.Keep != nil {
		src.Keep = *file.Keep
	}
	return src, nil
}

// Built returns the source of an image that a build has made. keep is as in File; nil: the default.
func Built(at Target, digest string, keep *int) (Source, error) {
	image := at.ref().SetDigest(digest)
	if _, err := parseImage(image.CommonName()); err != nil {
		return Source{}, plugin.Errorf(fairlead.ReasonSpecInvalid, "the image of the build has no valid address: %v", err)
	}
	src := Source{Image: image, Keep: defaultKeep}
	if keep != nil {
		if src.Keep = *keep; src.Keep < 0 || src.Keep > maxKeep {
			return Source{}, plugin.Errorf(fairlead.ReasonSpecInvalid, "the option keep must be from 0 to %d", maxKeep)
		}
	}
	return src, nil
}

func invalid(format string, args ...any) error {
	return plugin.Errorf(fairlead.ReasonArtifactInvalid, format, args...)
}

var variable = pattern.New(`\$\{vars\.([^}]*)\}`)

// substitute puts the variables into a text.
func substitute(text string, vars map[string]json.RawMessage) (string, error) {
	var wrong error
	out := variable.ReplaceAllStringFunc(text, func(match string) string {
		name := variable.FindStringSubmatch(match)[1]
		raw, ok := vars[name]
		var value string
		var number json.Number
		switch {
		case !ok:
			wrong = fmt.Errorf("%s is no variable of the component", match)
		case json.Unmarshal(raw, &value) == nil && string(raw) != "null":
		case json.Unmarshal(raw, &number) == nil && number != "":
			value = number.String()
		default:
			wrong = fmt.Errorf("%s is neither a text nor a number", match)
		}
		return value
	})
	return out, wrong
}

func parseImage(text string) (ref.Ref, error) {
	r, err := ref.New(text)
	if err != nil || r.Scheme != "reg" {
		return ref.Ref{}, fmt.Errorf("%s is no reference of an image in a registry", yamlnode.Quote(text))
	}
	if r.Digest != "" && !strings.HasPrefix(r.Digest, "sha256:") {
		return ref.Ref{}, fmt.Errorf("%s has a digest that is not of SHA-256", yamlnode.Quote(text))
	}
	return r, nil
}

func readKey(folder fs.FS, name string) (signature.Key, error) {
	if !fs.ValidPath(name) || path.Clean(name) != name {
		return signature.Key{}, fmt.Errorf("%s is no path of a file in the component's folder", yamlnode.Quote(name))
	}
	text, err := readFile(folder, name, maxKey)
	if err != nil {
		return signature.Key{}, fmt.Errorf("the public key %s cannot be read: %w", yamlnode.Quote(name), err)
	}
	return signature.ParseKey(name, text)
}

// readFile reads a regular file of at most limit bytes.
func readFile(folder fs.FS, name string, limit int64) ([]byte, error) {
	info, err := fs.Stat(folder, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("it does not exist")
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is no regular file")
	case info.Size() > limit:
		return nil, fmt.Errorf("it is larger than %d bytes", limit)
	}
	return fs.ReadFile(folder, name)
}

// lacks returns the first platform of want that has does not contain; "": has contains them all.
func lacks(has, want []string) string {
	for _, w := range want {
		p, err := platform.Parse(w)
		if err != nil {
			return w
		}
		if !slices.ContainsFunc(has, func(h string) bool {
			q, err := platform.Parse(h)
			return err == nil && platform.Match(p, q)
		}) {
			return w
		}
	}
	return ""
}

package bundle

import "encoding/json"

// The first arguments with which the CLI starts the programs of plugins. Each reads one request from standard input and writes one
// answer to standard output, as JSON.
const (
	Rendered = "rendered-images" // of the program that renders charts and manifests
	Resolved = "resolve"         // of the program that copies images
	Copied   = "copy"            // of the program that copies images
	Archived = "archive"         // of the program that copies images; a step asks, and the answer is the archive itself
)

// ExitAbsent is the exit code of a program that is asked for an archive which the registry does not have.
const ExitAbsent = 3

// ArchiveRequest asks for the archive of a provider in the mirror of an install's registry. The registry is that of a component on
// the install, as in the protocol of plugins.
type ArchiveRequest struct {
	Kind       string `json:"kind"`
	URL        string `json:"url"`
	Repository string `json:"repository"`
	Login      string `json:"login,omitempty"` // name of the environment variable with the login
	CA         string `json:"ca,omitempty"`    // name of the environment variable with certificates
	Region     string `json:"region,omitempty"`
	Address    string `json:"address"` // of the provider, such as registry.opentofu.org/hashicorp/aws
	Version    string `json:"version"`
	Platform   string `json:"platform"` // such as linux/amd64
}

// RenderRequest asks for the images of a component that is deployed nowhere.
type RenderRequest struct {
	Type      string         `json:"type"`
	Component string         `json:"component"`
	Source    string         `json:"source"` // absolute path of the component's folder
	Vars      map[string]any `json:"vars,omitempty"`
	Options   map[string]any `json:"options,omitempty"`
}

// RenderAnswer has the images of the component's objects.
type RenderAnswer struct {
	Images []Found `json:"images"`
	Error  string  `json:"error,omitempty"` // why the component cannot be rendered; "": it was rendered
}

// Found is an image in an object.
type Found struct {
	Image  string `json:"image"`  // as the object has it
	Object string `json:"object"` // such as Deployment/web
	Place  string `json:"place"`  // file, and line if it is known
}

// ResolveRequest asks for the digests of images.
type ResolveRequest struct {
	References []string `json:"references"`
}

// ResolveAnswer has an image for each reference that has one.
type ResolveAnswer struct {
	Images []Image           `json:"images"`
	Errors map[string]string `json:"errors,omitempty"` // by reference
}

// CopyRequest asks for a copy of a bundle: in one repository of a registry, or in the folder of an image layout of OCI.
type CopyRequest struct {
	Bundle     Bundle   `json:"bundle"`
	From       string   `json:"from,omitempty"`       // folder of an image layout that has the bundle; Bundle is then empty
	Layout     string   `json:"layout,omitempty"`     // folder for an image layout; "": the copy is in a registry
	Registry   string   `json:"registry,omitempty"`   // URL of the registry
	Repository string   `json:"repository,omitempty"` // in which the copies are kept
	Login      string   `json:"login,omitempty"`      // to the registry: USER:PASSWORD or a Docker configuration; "": that of the person
	CA         string   `json:"ca,omitempty"`         // certificates in PEM that the registry's may be signed with, besides those that the machine trusts
	Host       Host     `json:"host"`                 // the registry of the artifacts
	Providers  string   `json:"providers,omitempty"`  // folder with archives of providers, in the layout of a filesystem mirror; "": only registries have them
	Platforms  []string `json:"platforms,omitempty"`  // of the archives of providers, such as linux/amd64
}

// Host is a registry with a login.
type Host struct {
	URL      string `json:"url,omitempty"`
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
	CA       string `json:"ca,omitempty"` // as in CopyRequest
}

// CopyAnswer names what was copied.
type CopyAnswer struct {
	Reference string   `json:"reference,omitempty"` // of the index that names everything, by digest
	Digest    string   `json:"digest,omitempty"`    // of the index
	Entries   []Entry  `json:"entries,omitempty"`
	Absent    []string `json:"absent,omitempty"` // archives of providers that do not exist or are not locked, each with the reason
	Error     string   `json:"error,omitempty"`
}

// The texts that stand for values which are known only at an install, in a component that is rendered for its images. An image
// that is exactly ImagePlaceholder is in the install's registry already.
const (
	Placeholder      = "fairlead-unknown"
	ImagePlaceholder = "fairlead-image"
)

// Mirror is the repository, beside those of the installs, in which the registry of an install can have the images of all apps.
const Mirror = "mirror"

// Answer encodes an answer as a line.
func Answer(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	return append(text, '\n'), err
}

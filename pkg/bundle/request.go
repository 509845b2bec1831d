package bundle

import "encoding/json"

// The first arguments with which the CLI starts the programs of plugins. Each reads one request from standard input and writes one
// answer to standard output, as JSON.
const (
	Rendered = "rendered-images" // of the program that renders charts and manifests
	Resolved = "resolve"         // of the program that copies images
	Copied   = "copy"            // of the program that copies images
)

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

// CopyRequest asks for copies of images in one repository, with the index of the lock.
type CopyRequest struct {
	Images     []Image `json:"images"`
	Registry   string  `json:"registry"`   // URL of the registry
	Repository string  `json:"repository"` // in which the copies are kept
}

// CopyAnswer names the copied index.
type CopyAnswer struct {
	Reference string `json:"reference,omitempty"` // of the index, by digest
	Error     string `json:"error,omitempty"`
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

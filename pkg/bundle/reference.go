package bundle

import (
	"errors"
	"strings"

	"github.com/fairlead/fairlead/pkg/pattern"
)

var (
	registryForm   = pattern.New(`^([a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?(\.[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?)*|\[[a-fA-F0-9:]+\])(:[0-9]+)?$`)
	repositoryForm = pattern.New(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)
	tagForm        = pattern.New(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
	digestForm     = pattern.New(`^sha256:[0-9a-f]{64}$`)
	identifierForm = pattern.New(`^[0-9a-f]{64}$`) // of a local image, which no registry has
)

const (
	defaultRegistry = "docker.io"
	maxRepository   = 255 // bytes of a registry and a repository
)

// Normalize returns the one spelling of the reference of an image: with its registry, and with the tag latest if it has neither a tag
// nor a digest. References that a cluster pulls as the same image by the same tag have the same spelling.
func Normalize(reference string) (string, error) {
	if identifierForm.MatchString(reference) {
		return "", errors.New("it is the identifier of a local image")
	}
	name, digest, pinned := strings.Cut(reference, "@")
	if pinned && !digestForm.MatchString(digest) {
		return "", errors.New("its digest is not of SHA-256")
	}
	tag := ""
	if at := strings.LastIndexByte(name, ':'); at > strings.LastIndexByte(name, '/') {
		name, tag = name[:at], name[at+1:]
		if !tagForm.MatchString(tag) {
			return "", errors.New("its tag is not valid")
		}
	}
	registry, repository, ok := strings.Cut(name, "/")
	if !ok || !strings.ContainsAny(registry, ".:") && registry != "localhost" && strings.ToLower(registry) == registry {
		registry, repository = defaultRegistry, name
	}
	if registry == "index."+defaultRegistry {
		registry = defaultRegistry
	}
	if registry == defaultRegistry && !strings.Contains(repository, "/") {
		repository = "library/" + repository
	}
	switch {
	case !registryForm.MatchString(registry):
		return "", errors.New("the name of its registry is not valid")
	case !repositoryForm.MatchString(repository) || len(registry)+1+len(repository) > maxRepository:
		return "", errors.New("the name of its repository is not valid")
	case tag == "" && !pinned:
		tag = "latest"
	}
	out := registry + "/" + repository
	if tag != "" {
		out += ":" + tag
	}
	if pinned {
		out += "@" + digest
	}
	return out, nil
}

// DigestOf returns the digest of a reference; "": it has none.
func DigestOf(reference string) string {
	_, digest, _ := strings.Cut(reference, "@")
	return digest
}

// Package artifact packs a component's source folder into an OCI artifact that is named by its content, and unpacks it.
//
// Pack reads a folder and makes one uncompressed tar: files only, sorted, with no times, owners or modes beyond
// "executable or not". So the same content has the same digest on every machine and in every later version of Go. A
// compressor would not keep this: its output is not guaranteed, and a new toolchain must not turn unchanged source into
// a new app version. Sources are small texts, so compression would save little, and an uncompressed archive cannot be a
// compression bomb.
//
// Push stores the artifact in a registry. Pull fetches, verifies and unpacks it. Unpack treats every archive as
// hostile. RegistryHandler is the registry of the embedded control plane.
package artifact

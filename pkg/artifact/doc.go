// Package artifact packs a component's source folder into an OCI artifact whose digest is
// its name, and unpacks it.
//
// Pack reads a folder and creates one uncompressed tar: only files, sorted, without times,
// owners or modes other than "executable or not". So the same content has the same digest
// on every machine and in every later version of Go. Compression would not ensure this: the
// output of a compressor is not guaranteed, and a new toolchain must not turn unchanged
// source into a new app version. Sources are small texts, so compression would save little,
// and an uncompressed archive cannot be a compression bomb.
//
// Push stores the artifact in a registry. Pull fetches, verifies and unpacks it. Unpack
// treats every archive as hostile. RegistryHandler is the registry of the embedded control
// plane.
package artifact

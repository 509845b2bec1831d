// Package artifact packs a component's source folder into an OCI artifact whose digest is
// its name, and unpacks it.
//
// Pack reads a folder and creates one uncompressed tar. The tar has only files, sorted by
// path. It has no times and no owners, and of a file's mode only whether the file is
// executable. So the same content has the same digest on every machine and in every later
// version of Go.
//
// The tar is not compressed, because a new version of Go may compress the same source to
// different bytes. The digest would change, and unchanged source would become a new app
// version. Sources are small texts, so compression would save little. And an uncompressed
// archive cannot be a compression bomb.
//
// Push stores the artifact in a registry. Pull fetches, verifies and unpacks it. Unpack
// treats every archive as hostile. RegistryHandler is the registry of the embedded control
// plane.
package artifact

// Package fairlead defines the types that all packages share: identifiers, names, modes, actions, reasons, and error
// kinds and codes. Every other package may import it. It imports no other package of the module.
package fairlead

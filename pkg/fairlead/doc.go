// Package fairlead is the vocabulary of the product: identifiers, names and
// error kinds. Every other package may import it; it imports none of them.
package fairlead

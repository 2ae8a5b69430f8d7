// Package aggregate merges the stores of all sources into one view. For a key that several sources have, the source of
// the highest precedence wins and the others are shadowed; when the winner goes, the next one takes its place in the
// same commit. The package also explains why an object is as it is, and finds conflicts between objects of different
// keys.
package aggregate

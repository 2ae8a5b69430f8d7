// Package envoytest runs golden cases of translations (golden.go), and makes random meshes: valid objects that refer to
// each other, with all fields set that can be set.
package envoytest

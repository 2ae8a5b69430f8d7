// Package lastgood keeps the last published objects of each source on disk, so that a restart can serve them while the
// source is unreachable, and so that creation times, quarantines and holds survive the process.
//
// Each source has one file, which follows the source's table: Store.Run appends changes at most Delay later, in one
// commit, and no publisher waits for the disk. Each commit is synced before Status counts it as stored. After a crash
// of the process or the machine, the file has the state of Status.Revision or a newer one, and never half of a commit;
// the source delivers later changes again. When the appended records outgrow the content, the store replaces the file.
//
// A record with a wrong checksum loses only itself. A file without a whole commit, or with a record that cannot be
// decoded despite its checksum, is set aside. A file that cannot be read stays: its source is not stored until a person
// deletes the file, or a restart can read it. A store writes no file before its source was read as a whole.
package lastgood

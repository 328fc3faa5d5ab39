/* Records, and makes fail, what a process changes below one folder: preloaded (LD_PRELOAD) under Python and native
   code.

   A file of shared memory, named by FAULTS_CONTROL, says what to do; the drills change it while processes run. Every
   change is one record of the log, in the order in which the kernel saw it, across processes. A file that is synced is
   logged with all its bytes, so writes through mappings count there as well. Calls that change nothing aren't logged.

   Not seen: raw system calls, and what the C library writes itself (fwrite). A file that such a call renamed is noticed
   when it is synced (safetensors). The drills compare their model of the folder with the folder at the end of every
   recording, so any other such writer fails them instead of escaping them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CREATE = 1, WRITE, TRUNCATE, RENAME, UNLINK, MKDIR, RMDIR, LINK, SYNC, SYNC_FOLDER, MAP }; /* disk.py: Kind */
enum { FAIL = 1, KILL, TEAR, TEAR_AND_FAIL, SHORTEN, DIE };                                       /* drills.py: Fault */

struct control { /* disk.py: CONTROL */
  int32_t recording, fault, error, unused;
  int64_t n_calls, target, fired;
  char folder[1024], log[1024];
};

struct record { /* disk.py: RECORD */
  uint32_t kind, pid, first_length, second_length;
  uint64_t inode, offset, data_length;
};

static struct control* control;
static int lock_file = -1;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static __thread int inside;

#define REAL(name)               \
  static __typeof__(&name) real; \
  if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void start(void) {
  const char* path = getenv("FAULTS_CONTROL");
  int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (file < 0) return;
  lock_file = fcntl(file, F_DUPFD_CLOEXEC, 700);
  void* memory = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, lock_file, 0);
  if (memory != MAP_FAILED) control = memory;
}

/* Other processes wait: the order of the log is the order of the calls. A process that dies loses the lock. */
static void lock(short kind) {
  struct flock whole = {.l_type = kind, .l_whence = SEEK_SET};
  if (kind == F_WRLCK) pthread_mutex_lock(&mutex);
  while (fcntl(lock_file, F_SETLKW, &whole) < 0 && errno == EINTR) {
  }
  if (kind == F_UNLCK) pthread_mutex_unlock(&mutex);
}

static int below(const char* path) {
  size_t n = strlen(control->folder);
  return strncmp(path, control->folder, n) == 0 && (path[n] == '/' || path[n] == 0);
}

/* The absolute path of a name in a folder; 0 if it isn't below the watched folder. */
static int located(int folder, const char* name, char out[PATH_MAX]) {
  char joined[2 * PATH_MAX], place[64];
  if (!control || !control->recording || inside || !name) return 0;
  if (name[0] == '/') {
    snprintf(joined, sizeof joined, "%s", name);
  } else {
    char parent[PATH_MAX] = "";
    if (folder == AT_FDCWD) {
      if (!getcwd(parent, sizeof parent)) return 0;
    } else {
      snprintf(place, sizeof place, "/proc/self/fd/%d", folder);
      ssize_t n = readlink(place, parent, sizeof parent - 1);
      if (n <= 0) return 0;
      parent[n] = 0;
    }
    snprintf(joined, sizeof joined, "%s/%s", parent, name);
  }
  size_t n = strlen(joined);
  while (n > 1 && joined[n - 1] == '/') joined[--n] = 0;
  char *slash = strrchr(joined, '/'), parent[PATH_MAX];
  *slash = 0;
  if (!realpath(*joined ? joined : "/", parent)) return 0;
  return snprintf(out, PATH_MAX, "%s/%s", parent, slash + 1) < PATH_MAX && below(out);
}

/* The inode behind an open file; 0 if it isn't a file or folder below the watched one. */
static uint64_t watched(int file, int* is_folder) {
  char place[64], path[PATH_MAX];
  struct stat about;
  if (!control || !control->recording || inside || fstat(file, &about)) return 0;
  if (!S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode)) return 0;
  snprintf(place, sizeof place, "/proc/self/fd/%d", file);
  ssize_t n = readlink(place, path, sizeof path - 1);
  if (n <= 0) return 0;
  path[n] = 0;
  if (!below(path)) return 0;
  if (is_folder) *is_folder = S_ISDIR(about.st_mode);
  return about.st_ino;
}

static uint64_t inode_of(const char* path) {
  struct stat about;
  return lstat(path, &about) ? 0 : about.st_ino;
}

/* When a file was modified, in nanoseconds; 0 if it isn't there. */
static uint64_t time_of(const char* path) {
  struct stat about;
  return lstat(path, &about) ? 0 : 1000000000ull * about.st_mtim.tv_sec + about.st_mtim.tv_nsec;
}

static void put(uint32_t kind, const char* first, const char* second, uint64_t inode, uint64_t offset, const void* data,
                size_t length) {
  const char* root = control->folder;
  if (first) first += strlen(root);
  if (second) second += strlen(root);
  struct record head = {
      kind, (uint32_t)getpid(), first ? strlen(first) : 0, second ? strlen(second) : 0, inode, offset, length};
  struct iovec parts[4] = {{&head, sizeof head},
                           {(void*)first, head.first_length},
                           {(void*)second, head.second_length},
                           {(void*)data, length}};
  int saved = errno;
  inside = 1;
  int log = open(control->log, O_WRONLY | O_APPEND | O_CLOEXEC);
  size_t wanted = sizeof head + head.first_length + head.second_length + length;
  if (log < 0 || writev(log, parts, 4) != (ssize_t)wanted) abort();
  close(log);
  inside = 0;
  errno = saved;
}

/* Counts a call and says whether it is the one that the fault hits. */
static int hit(void) {
  if (++control->n_calls != control->target) return 0;
  control->fired = 1;
  if (control->fault == KILL) kill(0, SIGKILL);
  if (control->fault == DIE) kill(getpid(), SIGKILL);
  errno = control->error;
  return control->fault;
}

#define GUARDED(type, condition, call, after)    \
  if (!(condition)) return (call);               \
  lock(F_WRLCK);                                 \
  type answer = (type) - 1;                      \
  int fault = hit();                             \
  if (fault != FAIL && fault != TEAR_AND_FAIL) { \
    answer = (call);                             \
    int failed = errno;                          \
    if (answer != (type) - 1) {                  \
      after;                                     \
    }                                            \
    if (fault == TEAR) kill(0, SIGKILL);         \
    errno = failed;                              \
  }                                              \
  int cause = errno;                             \
  lock(F_UNLCK);                                 \
  errno = cause;                                 \
  return answer

/* Opening for writing: a file that appears or is emptied. */
#define OPENED(call)                                                                                            \
  char path[PATH_MAX];                                                                                          \
  int watch = (flags & (O_CREAT | O_TRUNC)) && (flags & O_TMPFILE) != O_TMPFILE && located(folder, name, path); \
  struct stat before = {0};                                                                                     \
  int was = watch && !lstat(path, &before);                                                                     \
  watch = watch && (!was || ((flags & O_TRUNC) && before.st_size));                                             \
  GUARDED(int, watch, call, put(was ? TRUNCATE : CREATE, was ? NULL : path, NULL, inode_of(path), 0, NULL, 0))

#define MODE                           \
  mode_t mode = 0;                     \
  if (flags & (O_CREAT | O_TMPFILE)) { \
    va_list rest;                      \
    va_start(rest, flags);             \
    mode = va_arg(rest, mode_t);       \
    va_end(rest);                      \
  }

int open(const char* name, int flags, ...) {
  REAL(open);
  MODE int folder = AT_FDCWD;
  OPENED(real(name, flags, mode));
}
int open64(const char* name, int flags, ...) {
  REAL(open64);
  MODE int folder = AT_FDCWD;
  OPENED(real(name, flags, mode));
}
int openat(int folder, const char* name, int flags, ...) {
  REAL(openat);
  MODE OPENED(real(folder, name, flags, mode));
}
int openat64(int folder, const char* name, int flags, ...) {
  REAL(openat64);
  MODE OPENED(real(folder, name, flags, mode));
}
int creat(const char* name, mode_t mode) { return open(name, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char* name, mode_t mode) { return open(name, O_CREAT | O_WRONLY | O_TRUNC, mode); }

/* Writing. A torn write is half of one, and then the end of all processes of the group. */
static ssize_t written(int file, const void* data, size_t length, off_t offset,
                       ssize_t (*at)(int, const void*, size_t, off_t), ssize_t (*next)(int, const void*, size_t)) {
  uint64_t inode = length ? watched(file, NULL) : 0;
  if (!inode) return next ? next(file, data, length) : at(file, data, length, offset);
  lock(F_WRLCK);
  int fault = hit();
  ssize_t n = -1;
  if (fault != FAIL) {
    if (fault) length = length > 1 ? length / 2 : length;
    off_t place = offset;
    if (next) place = fcntl(file, F_GETFL) & O_APPEND ? lseek(file, 0, SEEK_END) : lseek(file, 0, SEEK_CUR);
    n = next ? next(file, data, length) : at(file, data, length, offset);
    if (n > 0) put(WRITE, NULL, NULL, inode, place, data, n);
    if (fault == TEAR) kill(0, SIGKILL);
    if (fault == TEAR_AND_FAIL) n = -1, errno = control->error;
  }
  int cause = errno;
  lock(F_UNLCK);
  errno = cause;
  return n;
}

ssize_t write(int file, const void* data, size_t length) {
  REAL(write);
  return written(file, data, length, 0, NULL, real);
}
ssize_t pwrite(int file, const void* data, size_t length, off_t offset) {
  REAL(pwrite);
  return written(file, data, length, offset, real, NULL);
}
ssize_t pwrite64(int file, const void* data, size_t length, off_t offset) {
  REAL(pwrite64);
  return written(file, data, length, offset, real, NULL);
}
ssize_t writev(int file, const struct iovec* parts, int n) {
  REAL(writev);
  if (!watched(file, NULL)) return real(file, parts, n);
  ssize_t all = 0;
  for (int i = 0; i < n; i++) { /* one by one: a file system may keep any of them */
    ssize_t done = write(file, parts[i].iov_base, parts[i].iov_len);
    if (done < 0) return all ? all : -1;
    all += done;
    if ((size_t)done < parts[i].iov_len) break;
  }
  return all;
}

ssize_t pwritev(int file, const struct iovec* parts, int n, off_t offset) {
  REAL(pwritev);
  if (!watched(file, NULL)) return real(file, parts, n, offset);
  ssize_t all = 0;
  for (int i = 0; i < n; i++) {
    ssize_t done = pwrite(file, parts[i].iov_base, parts[i].iov_len, offset + all);
    if (done < 0) return all ? all : -1;
    all += done;
    if ((size_t)done < parts[i].iov_len) break;
  }
  return all;
}
ssize_t pwritev64(int file, const struct iovec* parts, int n, off64_t offset) {
  return pwritev(file, parts, n, offset);
}
ssize_t pwritev2(int file, const struct iovec* parts, int n, off_t offset, int flags) {
  REAL(pwritev2);
  if (!watched(file, NULL)) return real(file, parts, n, offset, flags);
  return offset < 0 ? writev(file, parts, n) : pwritev(file, parts, n, offset);
}
ssize_t pwritev64v2(int file, const struct iovec* parts, int n, off64_t offset, int flags) {
  return pwritev2(file, parts, n, offset, flags);
}

/* Copies inside the kernel, as ordinary writes of what they copy. */
static ssize_t copied(int out, off_t* at, int in, off_t* from, size_t length) {
  static char block[1 << 16];
  static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&one);
  size_t wanted = length < sizeof block ? length : sizeof block;
  ssize_t n = from ? pread(in, block, wanted, *from) : read(in, block, wanted);
  if (n > 0) n = at ? pwrite(out, block, n, *at) : write(out, block, n);
  if (n > 0 && from) *from += n;
  if (n > 0 && at) *at += n;
  pthread_mutex_unlock(&one);
  return n;
}
ssize_t sendfile(int out, int in, off_t* from, size_t length) {
  REAL(sendfile);
  return watched(out, NULL) ? copied(out, NULL, in, from, length) : real(out, in, from, length);
}
ssize_t sendfile64(int out, int in, off64_t* from, size_t length) { return sendfile(out, in, from, length); }
ssize_t copy_file_range(int in, off64_t* from, int out, off64_t* at, size_t length, unsigned flags) {
  REAL(copy_file_range);
  return watched(out, NULL) ? copied(out, at, in, from, length) : real(in, from, out, at, length, flags);
}

/* Sizes. */
static void resized(int file, uint64_t inode) {
  struct stat about;
  if (!fstat(file, &about)) put(TRUNCATE, NULL, NULL, inode, about.st_size, NULL, 0);
}
int ftruncate(int file, off_t length) {
  REAL(ftruncate);
  uint64_t inode = watched(file, NULL);
  GUARDED(int, inode, real(file, length), resized(file, inode));
}
int ftruncate64(int file, off64_t length) { return ftruncate(file, length); }
int posix_fallocate(int file, off_t offset, off_t length) { /* returns the error, sets no errno */
  REAL(posix_fallocate);
  uint64_t inode = watched(file, NULL);
  if (!inode) return real(file, offset, length);
  lock(F_WRLCK);
  int answer = hit() == FAIL ? control->error : real(file, offset, length);
  if (!answer) resized(file, inode);
  lock(F_UNLCK);
  return answer;
}
int posix_fallocate64(int file, off64_t offset, off64_t length) { return posix_fallocate(file, offset, length); }
int truncate(const char* name, off_t length) {
  int file = open(name, O_WRONLY | O_CLOEXEC);
  if (file < 0) return -1;
  int answer = ftruncate(file, length), cause = errno;
  close(file);
  errno = cause;
  return answer;
}
int truncate64(const char* name, off64_t length) { return truncate(name, length); }

/* Names. */
int renameat(int folder, const char* name, int other, const char* target) {
  REAL(renameat);
  char from[PATH_MAX], to[PATH_MAX];
  int watch = located(folder, name, from) & located(other, target, to);
  GUARDED(int, watch, real(folder, name, other, target), put(RENAME, from, to, 0, time_of(to), NULL, 0));
}
int rename(const char* name, const char* target) { return renameat(AT_FDCWD, name, AT_FDCWD, target); }
int linkat(int folder, const char* name, int other, const char* target, int flags) {
  REAL(linkat);
  char to[PATH_MAX];
  int watch = located(other, target, to);
  GUARDED(int, watch, real(folder, name, other, target, flags), put(LINK, to, NULL, inode_of(to), 0, NULL, 0));
}
int link(const char* name, const char* target) { return linkat(AT_FDCWD, name, AT_FDCWD, target, 0); }
int unlinkat(int folder, const char* name, int flags) {
  REAL(unlinkat);
  char path[PATH_MAX];
  int watch = located(folder, name, path) && inode_of(path);
  GUARDED(int, watch, real(folder, name, flags), put(flags & AT_REMOVEDIR ? RMDIR : UNLINK, path, NULL, 0, 0, NULL, 0));
}
int unlink(const char* name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char* name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }
int remove(const char* name) {
  struct stat about;
  return lstat(name, &about) ? -1 : unlinkat(AT_FDCWD, name, S_ISDIR(about.st_mode) ? AT_REMOVEDIR : 0);
}
int mkdirat(int folder, const char* name, mode_t mode) {
  REAL(mkdirat);
  char path[PATH_MAX];
  int watch = located(folder, name, path) && !inode_of(path);
  GUARDED(int, watch, real(folder, name, mode), put(MKDIR, path, NULL, inode_of(path), 0, NULL, 0));
}
int mkdir(const char* name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }

/* Syncing: with the bytes that the file has now, and its name, which a raw system call may have changed. */
static void synced(int file, uint64_t inode, int is_folder) {
  char path[PATH_MAX];
  if (is_folder) {
    put(SYNC_FOLDER, NULL, NULL, inode, 0, NULL, 0);
    return;
  }
  struct stat about;
  char place[64];
  snprintf(place, sizeof place, "/proc/self/fd/%d", file);
  ssize_t length = readlink(place, path, sizeof path - 1);
  path[length < 0 ? 0 : length] = 0;
  inside = 1;
  int again = open(place, O_RDONLY | O_CLOEXEC); /* the file may be open for writing only */
  inside = 0;
  if (again < 0 || fstat(again, &about)) abort();
  char* data = malloc(about.st_size + 1);
  ssize_t n = pread(again, data, about.st_size, 0);
  close(again);
  put(SYNC, about.st_nlink ? path : NULL, NULL, inode, 0, data, n < 0 ? 0 : n);
  free(data);
}
int fsync(int file) { /* the bytes reach this model's disk; the real one isn't made to wait */
  REAL(fsync);
  int is_folder = 0;
  uint64_t inode = watched(file, &is_folder);
  GUARDED(int, inode, inode ? 0 : real(file), synced(file, inode, is_folder));
}
int fdatasync(int file) {
  REAL(fdatasync);
  int is_folder = 0;
  uint64_t inode = watched(file, &is_folder);
  GUARDED(int, inode, inode ? 0 : real(file), synced(file, inode, is_folder));
}

/* Mappings through which a file is written: noted, so that a sample may keep part of what they hold. */
void* mmap(void* address, size_t length, int protection, int flags, int file, off_t offset) {
  REAL(mmap);
  void* answer = real(address, length, protection, flags, file, offset);
  int saved = errno;
  uint64_t inode = (flags & MAP_SHARED) && (protection & PROT_WRITE) && file >= 0 ? watched(file, NULL) : 0;
  if (inode && answer != MAP_FAILED) {
    lock(F_WRLCK);
    put(MAP, NULL, NULL, inode, offset, NULL, 0);
    lock(F_UNLCK);
  }
  errno = saved;
  return answer;
}
void* mmap64(void* address, size_t length, int protection, int flags, int file, off64_t offset) {
  return mmap(address, length, protection, flags, file, offset);
}

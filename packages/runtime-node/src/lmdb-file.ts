import * as fs from "node:fs";

/**
 * A check of an lmdb data file from the outside, because lmdb maps the file and trusts it: on a file that is cut, overwritten
 * or no database at all it ends the process with SIGSEGV or SIGBUS (lmdb 3.5.6, tried with each).
 *
 *     page 0, 1   meta pages; the one with the higher transaction id counts
 *     page n      branch or leaf page of the free-page tree or of the main tree, or the first of a run of overflow pages
 *
 *     page header   0 page number u64 | 8 transaction u64 | 16 pad u16 | 18 flags u16 | 20 lower u16 | 22 upper u16
 *     meta          24 magic u32 | 28 version u32 | 32 address | 40 map size | 48 free tree | 96 main tree | 144 last page u64
 *                   | 152 transaction u64
 *     tree          0 page size u32 (in the free tree) | 4 flags u16 | 6 depth u16 | 8 .. 31 page counts | 32 entries u64
 *                   | 40 root page u64
 *     node          0 low, 2 high half of the size (leaf) or of the child's page number (branch) | 4 flags u16, or the
 *                   child's top bits | 6 key size u16 | 8 key, then value or the number of its overflow page u64
 *
 * All little-endian; lower, upper and the node pointers behind the page header count from its end. Source: kriszyp/lmdb-js dependencies/lmdb/libraries/liblmdb/mdb.c, MDB_meta, MDB_page_header, MDB_node.
 */
const META_COUNT = 2;
const META_BYTES = 160;
const MAGIC = 0xbeef_c0de;
const VERSION = 2;
const PAGE_HEADER_BYTES = 24;
const NODE_HEADER_BYTES = 8;
const PAGE_BYTES_MIN = 512;
const PAGE_BYTES_MAX = 65_536;
const NO_PAGE = 2n ** 64n - 1n;
const PAGE_BRANCH = 0x01;
const PAGE_LEAF = 0x02;
const PAGE_OVERFLOW = 0x04;
const NODE_BIG = 0x01;
const FREE_TREE_POSITION = 48;
const MAIN_TREE_POSITION = 96;

/** Why the file is unusable. Never leaves this module: it becomes the result of `findLmdbDamage`. */
class Damage extends Error {}

interface Tree {
  readonly depth: number;
  readonly entryCount: bigint;
  readonly rootPage: bigint;
}

/**
 * What is wrong with the structure of an lmdb data file, or `undefined`: every page that a reader or the next writer follows is
 * there and well formed. Values are not looked at; lmdb keeps no checksums.
 *
 * Reads every live page once, directly: some ms for the few MB that a node's state takes.
 * @param path an absent or empty file is a new database, so nothing is wrong with it
 * @throws the system's own error when the file cannot be read
 */
export function findLmdbDamage(path: string): string | undefined {
  if (!["x64", "arm64"].includes(process.arch)) return undefined; // The layout above is that of 64-bit, little-endian machines.
  if (!fs.existsSync(path)) return undefined;
  const descriptor = fs.openSync(path, "r");
  try {
    const sizeBytes = fs.fstatSync(descriptor).size;
    if (sizeBytes > 0) new LmdbFile(descriptor, sizeBytes).check();
    return undefined;
  } catch (error) {
    if (error instanceof Damage) return error.message;
    throw error;
  } finally {
    fs.closeSync(descriptor);
  }
}

class LmdbFile {
  readonly #descriptor: number;
  readonly #pageBytes: number;
  /** Pages [0, #pageCount) lie whole in the file and were in use at the last commit. */
  readonly #pageCount: number;
  readonly #meta: DataView;
  /** Pages met so far: a page met twice is a cycle or belongs to two owners. */
  readonly #seenPages = new Set<number>();

  constructor(descriptor: number, sizeBytes: number) {
    this.#descriptor = descriptor;
    const first = this.#readMeta(0);
    this.#pageBytes = first.getUint32(FREE_TREE_POSITION, true);
    const isPowerOfTwo = (this.#pageBytes & (this.#pageBytes - 1)) === 0;
    if (!isPowerOfTwo || this.#pageBytes < PAGE_BYTES_MIN || this.#pageBytes > PAGE_BYTES_MAX) {
      throw new Damage(`page size ${this.#pageBytes}`);
    }
    const second = this.#readMeta(this.#pageBytes);
    this.#meta = second.getBigUint64(152, true) > first.getBigUint64(152, true) ? second : first;
    const lastPage = Number(this.#meta.getBigUint64(144, true));
    // The file may be shorter than its last page says, when the pages at the end are free.
    this.#pageCount = Math.min(lastPage + 1, Math.floor(sizeBytes / this.#pageBytes));
  }

  check(): void {
    this.#checkTree("free", readTree(this.#meta, FREE_TREE_POSITION));
    this.#checkTree("main", readTree(this.#meta, MAIN_TREE_POSITION));
  }

  #readMeta(positionBytes: number): DataView {
    const meta = this.#read(positionBytes, META_BYTES);
    if (meta.getUint32(24, true) !== MAGIC) throw new Damage("no lmdb meta page");
    if ((meta.getUint32(28, true) & 0xffff) !== VERSION) throw new Damage("another version of lmdb's format");
    return meta;
  }

  #checkTree(name: string, tree: Tree): void {
    if (tree.rootPage === NO_PAGE) {
      if (tree.entryCount !== 0n) throw new Damage(`${name} tree has entries but no root`);
      return;
    }
    const entryCount = this.#checkPage(tree.rootPage, tree.depth);
    if (BigInt(entryCount) !== tree.entryCount)
      throw new Damage(`${name} tree: ${entryCount} of ${tree.entryCount} entries`);
  }

  /** @returns the entries below the page */
  #checkPage(number: bigint, levels: number): number {
    const page = this.#readPage(number);
    const flags = page.getUint16(18, true);
    const lower = PAGE_HEADER_BYTES + page.getUint16(20, true);
    const upper = PAGE_HEADER_BYTES + page.getUint16(22, true);
    if ((flags & (PAGE_BRANCH | PAGE_LEAF | PAGE_OVERFLOW)) !== (levels > 1 ? PAGE_BRANCH : PAGE_LEAF)) {
      throw new Damage(`page ${number}: flags ${flags}`);
    }
    const isOrdered = lower > PAGE_HEADER_BYTES && lower % 2 === 0 && lower <= upper && upper <= this.#pageBytes;
    if (!isOrdered) throw new Damage(`page ${number}: bounds ${lower}, ${upper}`);
    let entryCount = 0;
    for (let pointer = PAGE_HEADER_BYTES; pointer < lower; pointer += 2) {
      const position = PAGE_HEADER_BYTES + page.getUint16(pointer, true);
      if (position < upper || position + NODE_HEADER_BYTES > this.#pageBytes) {
        throw new Damage(`page ${number}: node at ${position}`);
      }
      entryCount += levels > 1 ? this.#checkBranchNode(page, position, levels) : this.#checkLeafNode(page, position);
    }
    return entryCount;
  }

  #checkBranchNode(page: DataView, position: number, levels: number): number {
    const low = page.getUint32(position, true);
    const high = page.getUint16(position + 4, true);
    if (position + NODE_HEADER_BYTES + page.getUint16(position + 6, true) > this.#pageBytes) {
      throw new Damage(`branch node at ${position}: key past the page`);
    }
    return this.#checkPage((BigInt(high) << 32n) | BigInt(low), levels - 1);
  }

  #checkLeafNode(page: DataView, position: number): number {
    const valueBytes = page.getUint32(position, true);
    const flags = page.getUint16(position + 4, true);
    const valuePosition = position + NODE_HEADER_BYTES + page.getUint16(position + 6, true);
    const isBig = flags === NODE_BIG;
    if (flags !== 0 && !isBig) throw new Damage(`leaf node at ${position}: flags ${flags}`);
    if (valuePosition + (isBig ? 8 : valueBytes) > this.#pageBytes) {
      throw new Damage(`leaf node at ${position}: value past the page`);
    }
    if (isBig) this.#checkOverflow(page.getBigUint64(valuePosition, true), valueBytes);
    return 1;
  }

  #checkOverflow(number: bigint, valueBytes: number): void {
    const page = this.#readPage(number);
    const pageCount = page.getUint32(20, true);
    const neededCount = Math.ceil((PAGE_HEADER_BYTES + valueBytes) / this.#pageBytes);
    const isOverflow = (page.getUint16(18, true) & PAGE_OVERFLOW) !== 0;
    if (!isOverflow || pageCount < neededCount || Number(number) + pageCount > this.#pageCount) {
      throw new Damage(`overflow page ${number}: ${pageCount} pages for ${valueBytes} bytes`);
    }
  }

  #readPage(number: bigint): DataView {
    const index = Number(number);
    if (!(index >= META_COUNT && index < this.#pageCount)) throw new Damage(`page ${number} of ${this.#pageCount}`);
    if (this.#seenPages.has(index)) throw new Damage(`page ${number} is used twice`);
    this.#seenPages.add(index);
    const page = this.#read(index * this.#pageBytes, this.#pageBytes);
    if (page.getBigUint64(0, true) !== number) throw new Damage(`page ${number} says it is another`);
    return page;
  }

  #read(positionBytes: number, count: number): DataView {
    const bytes = new Uint8Array(count);
    const readCount = fs.readSync(this.#descriptor, bytes, 0, count, positionBytes);
    if (readCount < count) throw new Damage(`the file ends at ${positionBytes + readCount}`);
    return new DataView(bytes.buffer);
  }
}

function readTree(meta: DataView, positionBytes: number): Tree {
  return {
    depth: meta.getUint16(positionBytes + 6, true),
    entryCount: meta.getBigUint64(positionBytes + 32, true),
    rootPage: meta.getBigUint64(positionBytes + 40, true),
  };
}
